"""What the benchmarks share: programs that print JSON, run in turn with a peer; medians."""
import importlib.metadata
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"
MODEL = ROOT / "assets" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def call(command):
    """The JSON that a program prints; None (and why) when it cannot run."""
    command = [str(part) for part in command]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    starts = [at for at in (run.stdout.find("{"), run.stdout.find("[")) if at >= 0]
    if run.returncode != 0 or not starts:
        print(f"  not measured: {' '.join(command[:2])}: {run.stderr.strip()[-300:]}")
        return None
    return json.loads(run.stdout[min(starts):])


def in_turn(runners, rounds):
    """`runners`: name -> function that returns one measurement or None. What all of them return
    in every round; orders alternate, so that none always meets the machine that another left."""
    results = {name: [] for name in runners}
    for number in range(rounds):
        order = list(runners) if number % 2 == 0 else list(reversed(runners))
        for name in order:
            print(f"  round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            result = runners[name]()
            if result is not None:
                results[name].append(result)
    return results


def spread(values):
    """Median and all values; None where nothing was measured."""
    return {"median": statistics.median(values), "all": values} if values else None


def field(results, name):
    """Per runner the spread of one field of its measurements."""
    return {runner: spread([result[name] for result in found])
            for runner, found in results.items()}


def quotient(above, below):
    return above["median"] / below["median"] if above and below else None


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    return {"processor": fields.get("model name", "unknown"),
            "isa": [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
                    if name in flags],
            "threads": sum(line.startswith("processor") for line in lines)}


def native():
    """What `auto` computes in here: bf16 where the processor multiplies it, else f32 (over weights
    that stay bf16 or in the blocks of their file)."""
    return "bf16" if {"avx512_bf16", "amx_bf16"} & set(machine()["isa"]) else "f32"


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
    width = max([18] + [len(row[0]) + 2 for row in rows])
    print("\n" + title)
    for row in [header, *rows]:
        print("  " + row[0].ljust(width) + "".join(str(cell).rjust(16) for cell in row[1:]))


def cell(value, form="{:.2f}"):
    """A figure, the median of a spread, or a dash."""
    if isinstance(value, dict):
        value = value["median"]
    return "-" if value is None else form.format(value)
