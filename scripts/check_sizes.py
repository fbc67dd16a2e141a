#!/usr/bin/env python3
"""Checks the sizes of the house style: line 100, file 400, verb file 150, function 60 lines.
Functions are found by indentation, which clang-format guarantees."""
import pathlib
import re
import sys

MAX_LINE, MAX_FILE, MAX_FUNCTION, MAX_VERB = 100, 400, 60, 150
HEAD = re.compile(r"^( {0,2})[A-Za-z~].*")
NOT_A_FUNCTION = re.compile(r"^\s*(namespace|class|struct|enum|union|extern|if|for|while|switch)\b")


def functions(lines):
    """(first line, length) of every block that a line with a parameter list opens."""
    start, indent, signature = 0, "", ""
    for number, line in enumerate(lines, 1):
        line = re.sub(r"\s*//.*$", "", line)
        head = HEAD.match(line)
        if start == 0 and head:
            signature, indent = line, head.group(1)
            first = number
        if start == 0 and line.endswith("{") and signature and not NOT_A_FUNCTION.match(signature):
            if "(" in signature:
                start = first
        elif start and line.rstrip() == indent + "}":
            yield start, number - start + 1
            start, signature = 0, ""


def check(path: pathlib.Path):
    lines = path.read_text().splitlines()
    limit = MAX_VERB if path.name.startswith("verb_") else MAX_FILE
    if len(lines) > limit:
        yield f"{path}: {len(lines)} lines, at most {limit}"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            yield f"{path}:{number}: {len(line)} columns, at most {MAX_LINE}"
    if path.suffix in (".cpp", ".h"):
        for number, length in functions(lines):
            if length > MAX_FUNCTION:
                yield f"{path}:{number}: function of {length} lines, at most {MAX_FUNCTION}"


def main() -> int:
    found = 0
    for folder in ("src", "tests", "bench", "tools", "scripts", "reference"):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix in (".cpp", ".h", ".py"):
                for text in check(path):
                    print(text)
                    found += 1
    print(f"{found} size problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
