#!/usr/bin/env python3
"""Checks that every C++ file is as clang-format writes it (make format mends it)."""
import pathlib
import shutil
import subprocess
import sys


def main() -> int:
    tool = shutil.which("clang-format")
    if tool is None:
        print("clang-format is not installed: run scripts/setup.sh")
        return 1
    files = [str(path) for folder in ("src", "tests", "bench")
             for path in sorted(pathlib.Path(folder).rglob("*")) if path.suffix in (".cpp", ".h")]
    run = subprocess.run([tool, "--dry-run", "-Werror", *files], stderr=subprocess.PIPE, text=True)
    for line in run.stderr.splitlines():
        if "warning:" in line or "error:" in line:
            print(line)
    print("format: " + ("ok" if run.returncode == 0 else "run 'make format'"))
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
