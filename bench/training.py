"""Training steps beside speculators, and how they grow."""
import sys

from measure import ROOT, call, cell, field, in_turn, native, quotient, show_table, spread

VOCABULARY = 49152


def step(build, short, dtype, reduced, steps=7, rounds=2, **sizes):
    steps, rounds = (1, 1) if short else (steps, rounds)
    words = [f"{key}={value}" for key, value in sizes.items()]
    flags = [word for key, value in sizes.items() for word in (f"--{key}", value)]
    runners = {"ours": lambda: call([build / "train_bench", f"compute={dtype}",
                                     f"draft_vocab={reduced}", f"steps={steps}", *words,
                                     *(["gemm=1"] if dtype == native() else [])]),
               "speculators": lambda: call([sys.executable, ROOT / "bench" / "speculators_step.py",
                                            "--compute", dtype, "--draft-vocab", reduced,
                                            "--steps", steps, *flags])}
    runs = in_turn(runners, rounds)
    return {"seconds": field(runs, "median_seconds"), "peak_rss_mb": field(runs, "peak_rss_mb"),
            "runs": runs}


def training(build, short):
    own = native()
    rows = {f"{dtype}, {reduced or VOCABULARY} ids": step(build, short, dtype, reduced)
            for dtype in dict.fromkeys((own, "f32")) for reduced in (0, 8192)}
    if not short:
        rows[f"{own}, 5 layers, B=16, T=1024, 256 anchors"] = step(
            build, short, own, 0, steps=3, rounds=1, layers=5, block=16, tokens=1024, anchors=256)
        rows["growth"] = call([build / "train_bench", f"compute={own}", "draft_vocab=8192",
                               "growth=1", "steps=4"])
        rows["muon, 256 anchors"] = call([build / "train_bench", f"compute={own}", "optimizer=muon",
                                          "layers=5", "block=16", "tokens=1024", "anchors=256",
                                          "steps=5"])
    return rows


def ratios(results):
    rows = results["training"]
    full, reduced = rows[f"{native()}, 49152 ids"], rows[f"{native()}, 8192 ids"]

    def of_peer(row):
        return quotient(row["seconds"]["speculators"], row["seconds"]["ours"])
    memory = [quotient(row["peak_rss_mb"]["ours"], row["peak_rss_mb"]["speculators"])
              for row in (full, reduced)]
    shares = [spread([run["gemm_share"] for run in row["runs"]["ours"] if run.get("gemm_share")])
              for row in (full, reduced)]
    muon = rows.get("muon, 256 anchors") or {}
    growth = rows.get("growth") or {}
    return {"train_step_vs_speculators": of_peer(full),
            "train_step_8k_vs_speculators": of_peer(reduced),
            "train_gemm_share": min((share["median"] for share in shares if share), default=None),
            "muon_share": muon.get("orthogonalise_share"),
            "memory_vs_speculators": max((m for m in memory if m), default=None),
            "growth_exponent_max": growth.get("growth_exponent_max")}


def show(results):
    rows = [[name] + [cell(row["seconds"][side], "{:.3f}")
                      + (f" ({row['peak_rss_mb'][side]['median']:.0f})"
                         if row["peak_rss_mb"][side] else "") for side in ("ours", "speculators")]
            + [cell(quotient(row["seconds"]["speculators"], row["seconds"]["ours"]))]
            for name, row in results["training"].items() if row and "seconds" in row]
    show_table("training step, 2 layers, B=8, 64 anchors, T=512 unless said, AdamW, hard CE, "
               "seconds (peak MB)",
               ["dtype, vocabulary", "dflash-cpp", "speculators", "ratio"], rows)
