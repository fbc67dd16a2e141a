"""Runs the benchmarks and their peers one after the other on this machine, prints a table and
writes bench/results/<date>.json (machine, versions, dtype, method beside every figure).

    run.py BUILD_FOLDER
"""
import datetime
import json
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "assets" / "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "Write a Python function that returns the n-th Fibonacci number, and explain how it works."
NEW_TOKENS = 128


def call(command):
    """The JSON that a program prints; None (and why) when it cannot run."""
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    if run.returncode != 0:
        print(f"  not measured: {' '.join(map(str, command[:2]))}: {run.stderr.strip()[-300:]}")
        return None
    return json.loads(run.stdout[run.stdout.index("{"):])


def peer(script, *arguments):
    python = ROOT / ".venv-oracles" / "bin" / "python"
    return call([python, ROOT / "bench" / script, *arguments]) if python.exists() else None


def plain_decoding(build):
    """Tokens a second without a drafter, ours and transformers', in turn."""
    rows = {}
    for dtype in ("bf16", "f32"):
        ours = [call([build / "dflash-cpp", "generate", PROMPT, "--dtype", dtype, "--json",
                      "--quiet", "--max-new", NEW_TOKENS]) for _ in range(3)]
        rates = sorted(run["tokens_per_second"] for run in ours if run)
        theirs = peer("transformers_decode.py", MODEL, dtype, NEW_TOKENS, PROMPT)
        rows[dtype] = {"ours_tok_s": rates[len(rates) // 2], "ours_all": rates,
                       "transformers_tok_s": theirs and theirs["tok_s"],
                       "ratio": theirs and rates[len(rates) // 2] / theirs["tok_s"]}
    return rows


def training_steps(build):
    """Seconds of one training step, ours and speculators', for both vocabularies and dtypes."""
    rows = {}
    for dtype in ("bf16", "f32"):
        for vocabulary in (0, 8192):
            ours = call([build / "train_bench", f"compute={dtype}", f"draft_vocab={vocabulary}"])
            theirs = peer("speculators_step.py", "--compute", dtype, "--draft-vocab", vocabulary)
            row = {"ours": ours, "speculators": theirs}
            if ours and theirs:
                row["ratio"] = theirs["median_seconds"] / ours["median_seconds"]
                row["memory_ratio"] = ours["peak_rss_mb"] / theirs["peak_rss_mb"]
            rows[f"{dtype}, {vocabulary or 49152} ids"] = row
    return rows


def machine():
    flags = pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[1].splitlines()[0].split()
    return {"processor": platform.processor() or platform.machine(),
            "isa": [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
                    if name in flags],
            "cores": len([line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                          if line.startswith("processor")])}


def show(results):
    print(f"\nmachine: {results['machine']['cores']} cores, {', '.join(results['machine']['isa'])}")
    print("\nplain decoding, SmolLM2-135M, batch 1, greedy, tok/s (no drafter: tau 1)")
    print(f"  {'dtype':<8}{'dflash-cpp':>12}{'transformers':>14}{'ratio':>8}")
    for dtype, row in results["plain_decoding"].items():
        theirs = row["transformers_tok_s"]
        print(f"  {dtype:<8}{row['ours_tok_s']:>12.1f}"
              + (f"{theirs:>14.1f}{row['ratio']:>8.2f}" if theirs else f"{'-':>14}{'-':>8}"))
    print("\ntraining step, 2 layers, B=8, 64 anchors, T=512, seconds (peak MB)")
    print(f"  {'dtype, vocabulary':<18}{'dflash-cpp':>18}{'speculators':>18}{'ratio':>8}")
    for name, row in results["training_step"].items():
        cells = [f"{side['median_seconds']:.3f} ({side['peak_rss_mb']:.0f})" if side else "-"
                 for side in (row["ours"], row["speculators"])]
        print(f"  {name:<18}{cells[0]:>18}{cells[1]:>18}{row.get('ratio', 0):>8.2f}")


def main():
    build = ROOT / sys.argv[1]
    now = datetime.datetime.now()
    results = {"date": now.isoformat(timespec="seconds"), "machine": machine(),
               "method": "medians; ours and the peer in turn in one run",
               "plain_decoding": plain_decoding(build), "training_step": training_steps(build)}
    show(results)
    folder = ROOT / "bench" / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nwritten to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
