"""Runs the benchmarks and their peers in turn on this machine, prints tables and writes
bench/results/<date>.json (machine, versions, method, every single figure) and latest.json (the
ratios). Run it with the Python of `make oracles`; a missing peer is a dash.

    run.py BUILD_FOLDER [--short] [--only plain,passes,batched,speculation,training]

--short: one small round of everything, nothing is written. --only: so do parts of it.
"""
import argparse
import datetime
import json

import decoding
import speculation
import training
from measure import ROOT, cell, machine, show_table, versions

PARTS = {"plain": decoding.plain, "passes": lambda build, short: decoding.passes(build),
         "batched": decoding.batched, "speculation": speculation.speculation,
         "training": training.training}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", help="build folder with the program and the benches")
    parser.add_argument("--short", action="store_true", help="one small round, nothing is written")
    parser.add_argument("--only", default="", help="comma-separated parts; nothing is written")
    options = parser.parse_args()
    build, now = ROOT / options.build, datetime.datetime.now()
    chosen = options.only.split(",") if options.only else list(PARTS)
    results = {"date": now.isoformat(timespec="seconds"), "machine": machine(),
               "versions": versions(),
               "method": "ours and the peers in turn in one run, orders alternating; medians"}
    for part in chosen:
        results[part] = PARTS[part](build, options.short)
    print(f"\n{results['machine']['processor']}, {results['machine']['threads']} threads, "
          + ", ".join(results["machine"]["isa"]))
    ratios = {}
    for module, parts in ((decoding, ("plain", "passes", "batched")),
                          (speculation, ("speculation",)), (training, ("training",))):
        if all(part in results for part in parts):
            module.show(results)
            ratios |= module.ratios(results)
    show_table("ratios", ["name", ""], [[name, cell(value)] for name, value in ratios.items()])
    if options.short or options.only:
        return
    results["ratios"] = ratios
    folder = ROOT / "bench" / "results"
    path = folder / f"{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(results, indent=2) + "\n")
    latest = {key: results[key] for key in ("date", "machine", "versions", "method", "ratios")}
    (folder / "latest.json").write_text(json.dumps(latest, indent=2) + "\n")
    print(f"\nwritten to {path.relative_to(ROOT)} and bench/results/latest.json")


if __name__ == "__main__":
    main()
