#!/usr/bin/env python3
"""How far we are from what other programs compute, in one dated file.

    python3 tests/peers/parity_table.py [--build build/release] [--out bench/results]

Runs the tests that compare with files which those programs wrote (tests/golden/make_*.py say how
and with which versions) and lists what they recorded: the worst error of every stage beside the
bound that it must not pass. Comparisons without a recorded error ("passed") are exact (token ids,
texts) or have their bound in the test (ten-step curves). Exit 1 when a comparison fails or did
not run.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

# Test program, filter, whose program wrote the files, what is compared.
GROUPS = [
    ("target", "*Golden.F32EqualsTransformers*", "transformers", "Llama family, f32"),
    ("target", "*Golden.Bf16StaysNear*", "transformers", "Llama family, bf16"),
    ("target", "Smol.*Transformers*:Smol.TapsStayNear*:Smol.GreedyTexts*", "transformers",
     "SmolLM2-135M: taps, logits, greedy texts"),
    ("target", "*Family.F32EqualsTransformers*", "transformers",
     "Qwen3, 3-MoE, 3.5 dense and MoE, f32"),
    ("target", "*Family.TokenByToken*", "transformers", "the same, token by token"),
    ("target", "*Family.Bf16StaysNear*", "transformers", "the same, bf16"),
    ("target", "Qwen36Layout.*", "transformers", "Qwen3.6-27B's layout scaled down"),
    ("target", "*GgufTwin.*:*FamilyGguf.*", "llama.cpp's converter", "GGUF against its folder"),
    ("draft", "*Zlab.HiddenRows*", "z-lab's dflash", "drafter folders: hidden rows of blocks"),
    ("draft", "Speculators.CausalWindow:Speculators.BidirectionalWindow", "speculators",
     "packed row with windows: logits, gradients"),
    ("draft", "Speculators.FullVocabulary*:Speculators.ReducedVocabulary*", "speculators",
     "their checkpoints: logits"),
    ("draft", "DeepSpec.AnchorFirst*", "DeepSpec's layout (z-lab's class)", "anchor-first: logits"),
    ("draft", "LlamaCpp.*", "llama.cpp's converter and graph", "drafter GGUF: logits"),
    ("draft", "Reference.*", "the reference of this project's maths", "blocks, losses, gradients"),
    ("train", "Speculators.*", "speculators", "CE, KL, D-PACE steps; every loss row by row"),
    ("train", "ReferenceCurve.*", "the reference of this project's maths", "ten-step curves"),
    ("text", "*Golden.*Tokenizers*:*Golden*Qwen36*", "tokenizers", "ids of a hard corpus"),
    ("text", "Golden.*LlamaCpp", "llama.cpp", "ids of a hard corpus"),
    ("text", "Jinja.*Jinja2:Jinja.*Transformers", "jinja2, transformers", "chat templates"),
    ("text", "Chat.TextEqualsJinja", "jinja2", "SmolLM2's own template"),
]


def run_group(build, name, pattern):
    """Cases of gtest's report: [(test, result, {stage: "error <= bound"})]."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(build / f"test_{name}"), f"--gtest_filter={pattern}",
                   f"--gtest_output=json:{file.name}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        report = json.loads(pathlib.Path(file.name).read_text() or "{}")
    cases = []
    for suite in report.get("testsuites", []):
        for case in suite["testsuite"]:
            failed = bool(case.get("failures"))
            skipped = case.get("result") == "SKIPPED"
            errors = {key[len("error of "):]: value for key, value in case.items()
                      if key.startswith("error of ")}
            test = f"{suite['name']}.{case['name']}"
            if "value_param" in case:
                test = f"{suite['name'].split('/')[-1]}.{case['name'].split('/')[0]}" \
                       f"({case['value_param'].strip(chr(34))})"
            cases.append((test, "FAILED" if failed else "skipped" if skipped else "ok", errors))
    return cases


def closest(errors):
    """The stage that comes nearest to its bound."""
    def share(text):
        error, bound = (float(part) for part in text.split(" <= "))
        return error / bound if bound > 0 else (0.0 if error == 0 else float("inf"))
    return max(errors.items(), key=lambda item: share(item[1])) if errors else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--build", type=pathlib.Path, default=root / "build/release")
    parser.add_argument("--out", type=pathlib.Path, default=root / "bench/results")
    options = parser.parse_args()
    os.environ.setdefault("DFLASH_ASSETS", str(root / "assets"))
    rows, bad = [], 0
    print(f"{'compared':<52} {'with':<36} {'cases':>5}  nearest to its bound")
    for name, pattern, peer, what in GROUPS:
        cases = run_group(options.build, name, pattern)
        failed = sum(result == "FAILED" for _, result, _ in cases)
        ran = sum(result == "ok" for _, result, _ in cases)
        bad += failed > 0 or ran == 0
        worst = closest({f"{test}: {stage}": value for test, _, errors in cases
                         for stage, value in errors.items()})
        text = f"{worst[1]}  ({worst[0]})" if worst else "passed"
        if failed or not ran:
            text = f"{failed} FAILED" if failed else "DID NOT RUN"
        print(f"{what:<52} {peer:<36} {ran:>5}  {text}", flush=True)
        rows.append({"what": what, "peer": peer,
                     "cases": [{"test": test, "result": result, "errors": errors}
                               for test, result, errors in cases]})
    date = datetime.date.today().isoformat()
    scripts = sorted(path.name for path in (root / "tests/golden").glob("make_*.py"))
    path = options.out / f"parity-tests-{date}.json"
    path.write_text(json.dumps({"date": date, "machine": platform.machine(),
                                "written_by": scripts, "groups": rows}, indent=1) + "\n")
    print(path)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
