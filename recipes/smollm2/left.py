"""The prompts that no answer is there for, by id.

    left.py PROMPTS.jsonl... --answers ANSWERS.jsonl... > LEFT.jsonl
"""
import argparse
import json
import sys


def rows(paths):
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def prompt_of(answer_id):
    """Answers are numbered by prompt: `<prompt>#<number>`."""
    return answer_id.rpartition("#")[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("prompts", nargs="+")
    parser.add_argument("--answers", nargs="*", default=[])
    options = parser.parse_args()
    answered = {prompt_of(row["id"]) for row in rows(options.answers)}
    for row in rows(options.prompts):
        if row["id"] not in answered:
            sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
