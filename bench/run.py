"""Runs the benchmarks and their peers in turn on this machine, prints tables and writes
bench/results/<date>.json (machine, versions, dtype and method beside the figures). Run it with the
Python of `make oracles`; without the peers only this program is measured.

    run.py BUILD_FOLDER [--short]     --short: one small round of everything, nothing is written
"""
import argparse
import datetime
import importlib.metadata
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "assets" / "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "Write a Python function that returns the n-th Fibonacci number, and explain how it works."
DTYPES = ("bf16", "f32")
VOCABULARY = 49152
VOCABULARIES = (VOCABULARY, 8192)


def call(command):
    """The JSON that a program prints; None (and why) when it cannot run."""
    command = [str(part) for part in command]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    begin = run.stdout.find("{")
    if run.returncode != 0 or begin < 0:
        print(f"  not measured: {' '.join(command[:2])}: {run.stderr.strip()[-300:]}")
        return None
    return json.loads(run.stdout[begin:])


def in_turn(ours, peer, rounds):
    """What both print in every round. Orders alternate (ours first, peer first, ...), so that
    neither always meets the machine that the other left behind."""
    runs = {"ours": [], "peer": []}
    for number in range(rounds):
        for side in ("ours", "peer") if number % 2 == 0 else ("peer", "ours"):
            command = ours if side == "ours" else peer
            words = " ".join(pathlib.Path(str(word)).name for word in command[:8])
            print(f"  round {number + 1} of {rounds}: {words}", file=sys.stderr, flush=True)
            result = call(command)
            if result:
                runs[side].append(result)
    return runs


def summary(runs, field):
    """Per side the median of `field` and all its values; None where nothing was measured."""
    out = {}
    for side, results in runs.items():
        values = [result[field] for result in results]
        out[side] = {"median": statistics.median(values), "all": values} if values else None
    return out


def quotient(above, below):
    return above["median"] / below["median"] if above and below else None


def plain_decoding(build, short):
    """Tokens a second without a drafter, ours and transformers'."""
    new_tokens = 8 if short else 128
    rows = {}
    for dtype in DTYPES:
        runs = in_turn(
            [build / "dflash-cpp", "generate", PROMPT, "--target", MODEL, "--proposer", "none",
             "--dtype", dtype, "--json", "--quiet", "--max-new", new_tokens],
            [sys.executable, ROOT / "bench" / "transformers_decode.py", MODEL, dtype, new_tokens,
             PROMPT], 1 if short else 4)
        row = summary(runs, "tokens_per_second")
        rows[dtype] = row | {"new_tokens": new_tokens,
                             "ratio": quotient(row["ours"], row["peer"])}
    return rows


def training_steps(build, short):
    """Seconds and peak memory of one training step, ours and speculators'."""
    steps = 1 if short else 7
    rows = {}
    for dtype in DTYPES:
        for vocabulary in VOCABULARIES:
            reduced = 0 if vocabulary == VOCABULARY else vocabulary
            runs = in_turn(
                [build / "train_bench", f"compute={dtype}", f"draft_vocab={reduced}",
                 f"steps={steps}"],
                [sys.executable, ROOT / "bench" / "speculators_step.py", "--compute", dtype,
                 "--draft-vocab", reduced, "--steps", steps], 1 if short else 2)
            seconds, memory = summary(runs, "median_seconds"), summary(runs, "peak_rss_mb")
            rows[f"{dtype}, {vocabulary} ids"] = {
                "seconds": seconds, "peak_rss_mb": memory,
                "ratio": quotient(seconds["peer"], seconds["ours"]),
                "memory_ratio": quotient(memory["ours"], memory["peer"]), "runs": runs}
    return rows


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    return {"processor": fields.get("model name", "unknown"),
            "isa": [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
                    if name in flags],
            "threads": sum(line.startswith("processor") for line in lines)}


def versions():
    found = {"dflash.cpp": subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT,
                                          capture_output=True, text=True).stdout.strip()}
    for package in ("torch", "transformers", "speculators"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def show_table(title, header, rows):
    print("\n" + title)
    for row in [header, *rows]:
        print("  " + row[0].ljust(18) + "".join(cell.rjust(18) for cell in row[1:]))


def show(results):
    def cell(value, form):
        return "-" if value is None else form.format(value)

    def median(side, form, absent="-"):
        return form.format(side["median"]) if side else absent

    print(f"\n{results['machine']['processor']}, {results['machine']['threads']} threads, "
          + ", ".join(results["machine"]["isa"]))
    show_table("plain decoding, SmolLM2-135M, batch 1, greedy, tok/s (no drafter: tau 1)",
               ["dtype", "dflash-cpp", "transformers", "ratio"],
               [[dtype, median(row["ours"], "{:.1f}"), median(row["peer"], "{:.1f}"),
                 cell(row["ratio"], "{:.2f}")]
                for dtype, row in results["plain_decoding"].items()])
    show_table("training step, 2 layers, B=8, 64 anchors, T=512, AdamW, hard CE, seconds (peak MB)",
               ["dtype, vocabulary", "dflash-cpp", "speculators", "ratio"],
               [[name] + [median(row["seconds"][side], "{:.3f}")
                          + median(row["peak_rss_mb"][side], " ({:.0f})", "")
                          for side in ("ours", "peer")] + [cell(row["ratio"], "{:.2f}")]
                for name, row in results["training_step"].items()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", help="build folder with the program and the benches")
    parser.add_argument("--short", action="store_true", help="one small round, nothing is written")
    options = parser.parse_args()
    build, now = ROOT / options.build, datetime.datetime.now()
    results = {"date": now.isoformat(timespec="seconds"), "machine": machine(),
               "versions": versions(),
               "method": "ours and the peer in turn in one run, orders alternating; medians",
               "plain_decoding": plain_decoding(build, options.short),
               "training_step": training_steps(build, options.short)}
    show(results)
    if options.short:
        return
    folder = ROOT / "bench" / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nwritten to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
