#!/usr/bin/env python3
"""Composes prompts/train.jsonl and prompts/heldout.jsonl from prompts/sources/*.txt.

A source file is one kind of prompt. Its sections are [train GROUP], [heldout GROUP] (topics, one a
line) and [forms GROUP] (sentences with {topic}); a prompt is a form of a group filled with a topic
of it. No topic is in both files. Code topics are table rows, maths topics draw their numbers (see
the first line of each). The result depends on the sources and the seed only.

    python3 tools/compose_prompts.py             writes both files
    python3 tools/compose_prompts.py --check     fails when the files are not what the sources give
    ... --against assets/HumanEval.jsonl         also fails on a shared run of 13 tokens
"""

import argparse
import hashlib
import json
import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ["code", "maths", "explanation", "writing", "lists", "rewriting"]
TRAIN_COUNTS = dict.fromkeys(KINDS, 290) | {"code": 770}
HELDOUT_COUNT = 10
RUN_TOKENS = 13


def read_sections(kind):
    """{(section, group): [lines]} of a source file."""
    sections, current = {}, None
    for line in (ROOT / "prompts/sources" / f"{kind}.txt").read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("# "):
            continue
        header = re.fullmatch(r"\[(\w+) (\w+)\]", line)
        if header:
            section = header.group(1)
            current = sections.setdefault(header.groups(), [])
        else:
            current.append(line.replace("\\n", "\n") if section == "forms" else line)
    return sections


def generator(*keys):
    """Random numbers that depend on the keys only, not on Python's hashing."""
    digest = hashlib.sha256("|".join(map(str, keys)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def fill_function(form, row):
    """A code form with a table row: name | parameters | returns | what | call | value."""
    name, params, returns, what, call, value = [cell.strip() for cell in row.split(" | ")]
    what_capital = what[0].upper() + what[1:]
    stub = (f'def {name}({params}) -> {returns}:\n    """{what_capital}.\n\n'
            f"    >>> {call}\n    {value}\n    \"\"\"\n")
    plain = ", ".join(re.findall(r"(\w+):", params))
    fields = {"name": name, "params": params, "returns": returns, "call": call, "value": value,
              "what": what, "What": what_capital, "stub": stub, "plain": plain}
    return name, re.sub(r"\{(\w+)\}", lambda match: fields[match.group(1)], form)


def draw_numbers(text, numbers):
    """Replaces {a:2-9}, {!a:2-9}, {a} and {=a*b}, from left to right."""
    values = {}

    def draw(match):
        hidden, name, low, high, expression = match.groups()
        if expression:
            # Arithmetic of our own source files, not input.
            return str(eval(expression, {"__builtins__": {}}, dict(values)))
        if low:
            values[name] = numbers.randint(int(low), int(high))
        return "" if hidden else str(values[name])

    return re.sub(r"\{(?:(!)?(\w)(?::(\d+)-(\d+))?|=([^}]+))\}", draw, text)


def fill(kind, group, form, topic, numbers):
    """(name of the topic, prompt)."""
    if (kind, group) == ("code", "function"):
        return fill_function(form, topic)
    name, text = topic.split(" | ", 1) if " | " in topic else (topic, topic)
    text = draw_numbers(text, numbers) if (kind, group) == ("maths", "problem") else text
    prompt = form.replace("{topic}", text)
    return name, prompt[0].upper() + prompt[1:]


def compose(kind, section, count, seed):
    """`count` prompts: topics in turn, each time with the least used form it has not had yet."""
    sections = read_sections(kind)
    order = generator(seed, kind, section, "order")
    topics = []  # (rank within its group, group, topic)
    for (name, group), lines in sections.items():
        if name == section:
            topics += [(i, group, line) for i, line in enumerate(order.sample(lines, len(lines)))]
    if section == "heldout":
        topics.sort(key=lambda item: item[0])  # few prompts: groups in turn
    else:
        order.shuffle(topics)
    used, had, prompts = {}, set(), []
    for turn in range(count):
        _, group, topic = topics[turn % len(topics)]
        forms = [form for form in sections[("forms", group)] if (topic, form) not in had]
        if not forms:
            raise SystemExit(f"{kind}: more prompts than forms for: {topic}")
        form = min(forms, key=lambda form: (used.get(form, 0), order.random()))
        used[form] = used.get(form, 0) + 1
        had.add((topic, form))
        name, prompt = fill(kind, group, form, topic, generator(seed, kind, topic, turn))
        prompts.append({"kind": kind, "topic": name, "prompt": prompt})
    return prompts


def compose_file(section, counts, seed):
    """All kinds, mixed, with ids."""
    prompts = [prompt for kind in KINDS for prompt in compose(kind, section, counts[kind], seed)]
    generator(seed, section, "mix").shuffle(prompts)
    return [{"id": f"{section}-{i:04d}", **prompt} for i, prompt in enumerate(prompts)]


def tokens(text):
    return re.findall(r"\w+|[^\w\s]", text)


def shared_runs(prompts, evaluation):
    """Ids of prompts that share a run of 13 tokens with a line of the evaluation file."""

    def runs(text):
        parts = tokens(text)
        return {tuple(parts[i:i + RUN_TOKENS]) for i in range(len(parts) - RUN_TOKENS + 1)}

    known = set()
    for line in evaluation.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for key in ("prompt", "canonical_solution", "test"):
            known |= runs(record.get(key, ""))
    return [prompt["id"] for prompt in prompts if runs(prompt["prompt"]) & known]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    files = {"train": compose_file("train", TRAIN_COUNTS, options.seed),
             "heldout": compose_file("heldout", dict.fromkeys(KINDS, HELDOUT_COUNT), options.seed)}
    everything = files["train"] + files["heldout"]
    if len({prompt["prompt"] for prompt in everything}) != len(everything):
        raise SystemExit("two prompts are equal")
    if {p["topic"] for p in files["train"]} & {p["topic"] for p in files["heldout"]}:
        raise SystemExit("a topic is in both files")
    if options.against and (shared := shared_runs(everything, options.against)):
        raise SystemExit(f"shared with {options.against}: {', '.join(shared)}")
    for section, prompts in files.items():
        path = ROOT / "prompts" / f"{section}.jsonl"
        text = "".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts)
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is out of date: run tools/compose_prompts.py")
    print(f"{len(files['train'])} train, {len(files['heldout'])} heldout")


if __name__ == "__main__":
    sys.exit(main())
