"""Writes tests/golden/text: token ids by the `tokenizers` library, chat text by jinja2.

  python tests/golden/make_text.py SmolLM2-135M-Instruct.Q4_1.gguf [LLAMA_IDS]

LLAMA_IDS: what llama.cpp's `llama_vocab::tokenize(text, add_special=false, parse_special=true)`
gives for the same file, one line of ids for each text of corpus.json, after broken UTF-8 has been
replaced by U+FFFD (llama.cpp itself throws, or makes other replacements, on broken bytes).

SmolLM2's vocabulary is read from the GGUF file and is not stored; the small vocabularies are
trained here and stored whole, each with another pipeline. Characters are limited to those assigned
in this Python's Unicode version, since the libraries on the two sides differ in newer ones.
"""

import json
import pathlib
import random
import sys
import unicodedata

import gguf
import jinja2.sandbox
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers

from text_corpus import BROKEN, HARD, LINES, RANGES, conversations

OUT = pathlib.Path(__file__).parent / "text"

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")


def random_text(rng):
    low_high = rng.choices(RANGES, [w for _, _, w in RANGES], k=rng.randint(1, 24))
    chars = [chr(rng.randint(low, high)) for low, high, _ in low_high]
    return "".join(c for c in chars if unicodedata.category(c) not in ("Cn", "Cs"))


def corpus():
    rng = random.Random(20)
    texts = [t.encode() for t in HARD] + [bytes.fromhex(h) for h in BROKEN]
    texts += [random_text(rng).encode() for _ in range(200)]
    return texts


def lossy(raw):
    return raw.decode("utf-8", "replace")


def byte_begins(encoding, text):
    """Byte where each token's first character begins."""
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode()))
    return [starts[begin] for begin, _ in encoding.offsets]


def ids_of(tokenizer, texts):
    """Ids with special tokens parsed and, where that differs, as plain text."""
    out = []
    for raw in texts:
        text = lossy(raw)
        tokenizer.encode_special_tokens = False
        parsed = tokenizer.encode(text, add_special_tokens=False)
        entry = {"ids": parsed.ids}
        # Where a byte is not in the vocabulary the library drops it, and its later offsets drift.
        whole = not text or parsed.offsets[-1][1] == len(text)
        if tokenizer.normalizer is None and text.encode() == raw and whole:
            entry["begins"] = byte_begins(parsed, text)
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        if plain != parsed.ids:
            entry["plain"] = plain
        tokenizer.encode_special_tokens = False
        out.append(entry)
    return out


def decodes_of(tokenizer, size, seed):
    """Random ids. Added tokens with letters beyond ASCII stay out: the library takes their letters
    for byte symbols and writes U+FFFD."""
    rng = random.Random(seed)
    broken = tokenizer.token_to_id("éte")
    out = []
    for _ in range(40):
        ids = [i for i in (rng.randrange(size) for _ in range(rng.randint(1, 12))) if i != broken]
        out.append(
            {
                "ids": ids,
                "text": tokenizer.decode(ids, skip_special_tokens=False),
                "skipped": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    return out


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (OUT / name).write_text(text.replace("},{", "},\n{") + "\n")


def write_ids(name, tokenizer, texts):
    write(
        name,
        {
            "encode": ids_of(tokenizer, texts),
            "decode": decodes_of(tokenizer, tokenizer.get_vocab_size(), 7),
        },
    )


def mini(split, normalizer, seed_tokens, ignore_merges=False):
    """A vocabulary of some hundred tokens with one pipeline, and added tokens of every kind."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(LINES.splitlines(keepends=True), trainer)
    if seed_tokens:  # entries that no merge produces: only ignore_merges reaches them
        state = json.loads(tokenizer.to_str())
        for token in seed_tokens:
            state["model"]["vocab"].setdefault(token, len(state["model"]["vocab"]))
        tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(
        [
            AddedToken("<think>", normalized=False),
            AddedToken("</think>", normalized=False),
            AddedToken("solo", single_word=True, normalized=False),
            AddedToken("éte", normalized=True),
            AddedToken("<lft>", lstrip=True, normalized=False),
            AddedToken("<rgt>", rstrip=True, normalized=False),
        ]
    )
    return tokenizer


def split_of(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def minis():
    digits = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    unreached = ["zqzq", "Ġzq", "1234", "123", "foxes", "Ġtheé", "ĠHello"]
    return {
        "smollm": mini(digits, None, []),
        "qwen2": mini(split_of(QWEN2), normalizers.NFC(), []),
        "qwen35": mini(split_of(QWEN35), normalizers.Sequence([normalizers.NFC()]), []),
        "llama3": mini(split_of(LLAMA3), None, unreached, ignore_merges=True),
        "llama3_merges": mini(split_of(LLAMA3), None, unreached),
    }


def write_minis(texts):
    for name, tokenizer in minis().items():
        folder = OUT / f"mini_{name}"
        folder.mkdir(exist_ok=True)
        state = json.loads(tokenizer.to_str())
        if name == "qwen2":  # the older spelling of merges
            state["model"]["merges"] = [" ".join(pair) for pair in state["model"]["merges"]]
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
        (folder / "tokenizer.json").write_text(text + "\n")
        write_ids(f"mini_{name}/ids.json", tokenizer, texts)


def smollm2(fields):
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def write_chat(template, tokenizer):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    start = template.index("{% if loop.first")
    plain = template[:start] + template[template.index("{{'<|im_start|>'", start) :]
    cases = []
    for messages in conversations():
        case = {"messages": messages}
        for name, source in (("smollm2", template), ("plain", plain)):
            for prompt in (False, True):
                text = environment.from_string(source).render(
                    messages=messages, add_generation_prompt=prompt
                )
                key = name + ("_prompt" if prompt else "")
                case[key] = text
                if name == "smollm2":
                    case[key + "_ids"] = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append(case)
    write("chat.json", {"smollm2": template, "plain": plain, "cases": cases})


def main():
    OUT.mkdir(exist_ok=True)
    fields = {
        k: f.contents()
        for k, f in gguf.GGUFReader(sys.argv[1]).fields.items()
        if k.startswith("tokenizer")
    }
    texts = corpus()
    write("corpus.json", [raw.hex() for raw in texts])
    write_minis(texts)
    tokenizer = smollm2(fields)
    write_ids("smollm2_ids.json", tokenizer, texts)
    if len(sys.argv) > 2:
        lines = pathlib.Path(sys.argv[2]).read_text().splitlines()
        write("smollm2_llama_cpp.json", [[int(i) for i in line.split()] for line in lines])
    write_chat(fields["tokenizer.chat_template"], tokenizer)


if __name__ == "__main__":
    main()
