"""Writes tests/golden/block/visibility.json: who sees whom, from sources other than src/block.

Anchor-relative and full rules: the mask function of vllm-project/speculators
(speculators/models/dflash/attention.py), asked for every (query, key) pair.
Query-relative rules: the formula of MODELS.md 4.9, positions compared pair by pair.

  python tests/golden/make_block.py    (needs torch and speculators' source)
"""

import importlib.util
import json
import pathlib
import random

import torch

OUT = pathlib.Path(__file__).parent / "block" / "visibility.json"


def speculators_mask():
    root = pathlib.Path(importlib.util.find_spec("speculators").submodule_search_locations[0])
    path = root / "models" / "dflash" / "attention.py"
    spec = importlib.util.spec_from_file_location("speculators_dflash_attention", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.create_anchor_block_mask_mod


def rows_by_speculators(make, doc, anchors, size, window, causal):
    mod, queries, keys = make(
        torch.tensor(doc), len(doc), torch.tensor(anchors), size,
        sliding_window=window or None, sliding_window_non_causal=not causal)
    zero = torch.tensor(0)
    return ["".join("1" if bool(mod(zero, zero, torch.tensor(q), torch.tensor(k))) else "0"
                    for k in range(keys)) for q in range(queries)]


def rows_by_formula(doc, anchors, size, window, causal):
    """The band: a key at most window-1 positions away, before the anchor or in the own block."""
    rows = []
    for j, anchor in enumerate(anchors):
        for k in range(size):
            row = ["0"] * (len(doc) + len(anchors) * size)
            for p in range(anchor):
                if doc[p] == doc[anchor] and anchor + k - p <= window - 1:
                    row[p] = "1"
            for other in range(size):
                if (other <= k or not causal) and abs(other - k) <= window - 1:
                    row[len(doc) + j * size + other] = "1"
            rows.append("".join(row))
    return rows


def main():
    random.seed(11)
    make = speculators_mask()
    cases = []
    for bound, window, causal in [("query", 0, False), ("anchor", 1, True), ("anchor", 3, True),
                                  ("anchor", 3, False), ("anchor", 50, True), ("query", 1, True),
                                  ("query", 2, False), ("query", 4, True), ("query", 4, False),
                                  ("query", 50, False)]:
        lengths = [random.randint(2, 7) for _ in range(3)]
        doc = [d for d, n in enumerate(lengths) for _ in range(n)] + [-1] * 2
        tokens = len(doc) - 2
        anchors = sorted(random.sample(range(tokens), 4))
        size = random.randint(2, 5)
        by_speculators = bound == "anchor" or window == 0
        rows = (rows_by_speculators(make, doc, anchors, size, window, causal) if by_speculators
                else rows_by_formula(doc, anchors, size, window, causal))
        cases.append({"doc": doc, "anchors": anchors, "block_size": size, "window": window,
                      "bound": bound, "causal": causal, "visible": rows})
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
