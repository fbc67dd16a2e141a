#!/usr/bin/env python3
"""What `plan` predicts beside what real training processes take: for each configuration, `plan`
measures the machine and says peak memory and the time of a step, then `train` runs a few steps; the
kernel says the largest resident set, the run's metrics the seconds of its steps (median without
the first two, times planned anchors over anchors of that step).

    plan_check.py PROGRAM DATASET FEATURES [--steps 9] [--only NAME ...]

DATASET from `prepare`, FEATURES from `capture` with the default taps, both of the default target.
Prints a table and exits 1 when a prediction of memory is off by more than 10 %: times are only as
steady as the machine."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

CONFIGURATIONS = {
    "stored features": ["--features", "{features}"],
    "live target": [],
    "5 layers, block 16, AdamW": ["--features", "{features}", "--layers", "5", "--block-size", "16",
                                  "--optimizer", "adamw"],
    "f32, draft vocabulary 8192": ["--features", "{features}", "--dtype", "f32", "--draft-vocab",
                                   "8192"],
    "short rows, 1 layer": ["--layers", "1", "--row-tokens", "512", "--anchors-per-document", "16",
                            "--anchors-per-step", "32"],
}
LIMIT = 0.10


def predicted(program, options):
    out = subprocess.run([program, "plan", "--json", *options],
                         capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(out.stderr)
    return json.loads(out.stdout)


def measured(program, options, folder):
    """Peak bytes of the process, file pages included."""
    process = subprocess.Popen([program, "train", "--quiet", "--out", folder, *options],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    anonymous = 0
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while True:
        pid, code, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        for line in status.read_text().splitlines():
            if line.startswith("RssAnon:"):
                anonymous = max(anonymous, int(line.split()[1]) * 1024)
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode != 0:
        sys.exit(process.stderr.read().decode())
    return usage.ru_maxrss * 1024, anonymous


def step_seconds(folder, planned_anchors):
    """Median of a run's steps, each as if it had the planned anchors."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    return statistics.median(step["seconds"] * planned_anchors / step["anchors"]
                             for step in steps[2:] if "seconds" in step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("dataset")
    parser.add_argument("features")
    parser.add_argument("--steps", default="9")
    parser.add_argument("--only", nargs="*", default=list(CONFIGURATIONS))
    args = parser.parse_args()
    print(f"{'configuration':<28}{'predicted':>12}{'measured':>12}{'off by':>9}"
          f"{'a step':>12}{'measured':>12}{'off by':>9}")
    worst = 0.0
    for name in args.only:
        options = ["--dataset", args.dataset, "--steps", args.steps]
        options += [part.format(features=args.features) for part in CONFIGURATIONS[name]]
        plan = predicted(args.program, options)
        folder = tempfile.mkdtemp()
        peak, anonymous = measured(args.program, options, folder)
        seconds = step_seconds(folder, plan["anchors_per_step"])
        shutil.rmtree(folder)
        off = plan["peak_bytes"] / peak - 1
        worst = max(worst, abs(off))
        print(f"{name:<28}{plan['peak_bytes'] / 1e6:>9.0f} MB{peak / 1e6:>9.0f} MB{off:>+9.1%}"
              f"{plan['seconds_per_step']:>10.3f} s{seconds:>10.3f} s"
              f"{plan['seconds_per_step'] / seconds - 1:>+9.1%}"
              f"   anonymous: {plan['needed_bytes'] / 1e6:.0f} and {anonymous / 1e6:.0f} MB",
              flush=True)
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
