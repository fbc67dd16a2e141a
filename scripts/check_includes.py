#!/usr/bin/env python3
"""Checks every #include "x/..." of src/ against the table of modules, and that Torch stays out of
the modules without it. Prints the offending lines; exit 1 when there is one."""
import pathlib
import re
import sys

ALLOWED = {
    "base": "",
    "io": "base",
    "block": "base",
    "runs": "base io",
    "plan": "base",
    "text": "base io",
    "nn": "base io",
    "data": "base io block text",
    "target": "base io nn",
    "draft": "base io block nn",
    "train": "base io block plan data nn target draft",
    "decode": "base block nn target draft",
    "jobs": "base io block text data nn target draft train decode",
    "eval": "base io block text data nn target draft decode",
    "serve": "base io block text data nn target draft decode",
    "doctor": "base io block text data nn target draft train decode jobs eval",
    "cli": "base io block text data nn target draft train decode jobs eval serve doctor runs plan",
}
NO_TORCH = {"base", "io", "block", "runs", "plan", "text", "data"}
INCLUDE = re.compile(r'#\s*include\s+[<"]([^>"]+)[>"]')


def problem(module: str, path: pathlib.Path, included: str) -> str:
    top = included.split("/")[0]
    if top in ("torch", "ATen", "c10"):
        if module in NO_TORCH:
            return "Torch is not allowed in this module"
        if path.suffix == ".h" and included in ("torch/torch.h", "ATen/ATen.h", "torch/all.h"):
            return "umbrella header of Torch in a header"
    elif top in ALLOWED and top != module and top not in ALLOWED[module].split():
        return f"module {module} may not include {top}"
    return ""


def main() -> int:
    found = 0
    for path in sorted(pathlib.Path("src").rglob("*")):
        if path.suffix not in (".cpp", ".h"):
            continue
        module = path.parts[1]
        if module not in ALLOWED:
            print(f"{path}: unknown module {module}")
            found += 1
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            text = problem(module, path, match.group(1)) if match else ""
            if text:
                print(f"{path}:{number}: {line.strip()}: {text}")
                found += 1
    print(f"{found} include problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
