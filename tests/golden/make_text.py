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

OUT = pathlib.Path(__file__).parent / "text"

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")

LINES = """The quick brown fox jumps over the lazy dog, and the dog doesn't care.
def add(first, second):
    return first + second
for i in range(100): print(i, "the value of", i * i)
I'll say it again: we're here, they've gone, she'd know. It's 12345 things in 2024.
Les élèves étudient l'été à Genève, où naïve cœur déjà vu. Größe, Straße, Mädchen.
日本語の文章と中文的句子。 यह हिन्दी का वाक्य है। هذه جملة عربية. Это русское предложение.
<think> the user wants the sum of the numbers </think> The answer is the sum.
""" * 4

HARD = [
    "", " ", "  ", "   a", "a   ", "a  b   c    d", "\n", "\n\n\n", "\r\n", "a\r\nb\r\n\r\nc", "\t\tx\t y",
    " \n \n x", "a \n\n b", "x\u0085y", "x\u00a0y\u00a0\u00a0z", "\u2003a\u2003\u2003b", "a\u180eb", "\u180e",
    "a\u200bb", "\u3000全角", "a\u2028b\u2029c", "\x0b\x0c\x1c\x1d\x1e\x1f", "\x00\x01\x7f",
    "Hello, world!", "don't DON'T Don'T we'LL I'Ve it'S he'D y'all o'clock", "it'ſ 'ſ 'S 'k", "''s'''t",
    "a 12 b 123 1234 12345 1234567890", "3.14159 1e-10 0x1F 1,000,000", "1a2b3c", " 1 2  3",
    "٠١٢٣٤ ०१२३ １２３４ 𝟘𝟙𝟚 ⅷ½²₃①㊿", "x²+y³=z⁴",
    "e\u0301 cafe\u0301 Caf\u00e9 a\u0323\u0307 a\u0307\u0323", "\u212b \u2126 \u1e9b\u0323 \uf900 \u0344 \u0958",
    "\u1100\u1161\u11a8 가각 \u1112\u1161\u11ab\u1100\u1173\u11af", "\u0f73 \u0f71\u0f72 \u0cca \u0cc6\u0cc2",
    "\u0301start q\u0307\u0323q\u0323\u0307 \u0301\u0300\u0323", "ﬁ ﬂ ŉ ß ẞ İ ı ǅ",
    "العَرَبِيَّةُ مُحَمَّد ١٢٣", "नमस्ते दुनिया क्षत्रिय श्री", "สวัสดีครับ ภาษาไทย", "ខ្មែរ မြန်မာ",
    "中文字符测试，日本語のテスト。한국어 시험!", "中a国1人 b", "Ελληνικά Русский עִבְרִית", "𝒜𝓁𝓅𝒽𝒶 𐍈 𠀀𠀁",
    "😀", "👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪🇫🇷", "❤️❤ ☺︎", "a😀b 😀😀", "�",
    "<|im_end|>", "a<|im_end|>b", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|", "<|im_end|>>", "<<|im_end|>", "<|im_<|im_end|>end|>", "< |im_end|>", "<|IM_END|>",
    "<|endoftext|><|endoftext|>", " <|im_end|> ", "\n<|im_end|>\n", "é<|im_end|>e\u0301",
    "<think> x </think>", "a<think>b</think>c", "<tool_call>{}</tool_call>", "<empty_output>",
    "word solo word", "solo", "soloist", "a solo, solo.", "éSoLo éé solo", "éte", "e\u0301te", "xéte",
    "a  <lft>  b", "a  <rgt>  b", "  <lft><rgt>  ", "<rgt>  <lft>", "\u3000\n<lft>\t<rgt>\u2003\nx", "<lft><|im_end|>  <lft>",
    "def f(x):\n    if x:\n        return x  # comment\n\n\nclass A:\n\tpass\n",
    "#include <vector>\nint main() { return a->b == c ? 0 : -1; } // ok\n",
    "{\"key\": [1, 2.5, null, true], \"s\": \"a\\nb\"}", "https://example.org/a?b=c&d=%20#x",
    "SELECT * FROM t WHERE a >= 10 AND b != 'x';", "$$\\int_0^1 x^2\\,dx = \\frac{1}{3}$$",
    "!!!???...", "---====----", "a_b_c __init__ camelCaseWord ALLCAPS", "C++ C# F# .NET",
    "a" * 300, " " * 200, "ab" * 150, "\n" * 120, "=" * 100, "é" * 90, "the " * 80, "1" * 120, "😀" * 40,
    "The quick brown fox jumps over the lazy dog, and the dog doesn't care.",
    "Les élèves étudient l'été à Genève, où naïve cœur déjà vu.",
    "Write a function that returns the sum of the numbers in a list.",
]
BROKEN = ["80", "61ff62", "c3", "e282", "f09f98", "f09f9880f09f", "c0af", "eda080", "f4908080", "61c3283c7c696d5f656e647c3e",
          "e28261", "f0808080", "fffefd", "61e2828f6220c3a9c3", "f8888080", "c3a9ccffcc81"]

RANGES = [(0x20, 0x7E, 8), (0x20, 0x20, 3), (0x09, 0x0D, 1), (0x30, 0x39, 2), (0xA0, 0x24F, 2), (0x300, 0x36F, 2),
          (0x370, 0x52F, 1), (0x590, 0x6FF, 1), (0x900, 0xDFF, 1), (0xE00, 0xFFF, 1), (0x1100, 0x11FF, 1),
          (0x1E00, 0x1FFF, 1), (0x2000, 0x206F, 1), (0x2070, 0x2BFF, 1), (0x3000, 0x30FF, 1), (0x4E00, 0x9FFF, 1),
          (0xAC00, 0xD7A3, 1), (0xF900, 0xFFEF, 1), (0x10000, 0x1FFFF, 1), (0x1F300, 0x1F6FF, 1)]


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
        out.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                    "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    return out


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (OUT / name).write_text(text.replace('},{', '},\n{') + "\n")


def write_ids(name, tokenizer, texts):
    write(name, {"encode": ids_of(tokenizer, texts),
                 "decode": decodes_of(tokenizer, tokenizer.get_vocab_size(), 7)})


def mini(split, normalizer, seed_tokens, ignore_merges=False):
    """A vocabulary of some hundred tokens with one pipeline, and added tokens of every kind."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=640, show_progress=False, special_tokens=[],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(LINES.splitlines(keepends=True), trainer)
    if seed_tokens:  # entries that no merge produces: only ignore_merges reaches them
        state = json.loads(tokenizer.to_str())
        for token in seed_tokens:
            state["model"]["vocab"].setdefault(token, len(state["model"]["vocab"]))
        tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([
        AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False),
        AddedToken("solo", single_word=True, normalized=False), AddedToken("éte", normalized=True),
        AddedToken("<lft>", lstrip=True, normalized=False), AddedToken("<rgt>", rstrip=True, normalized=False)])
    return tokenizer


def split_of(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def minis():
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False)])
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
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer


def conversations():
    def turns(*texts, system=None):
        head = [{"role": "system", "content": system}] if system is not None else []
        roles = ("user", "assistant")
        return head + [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]
    return [
        turns("hi"), turns("hi", "hello"), turns("hi", ""), turns("", ""), turns("", "x"), turns(""),
        turns("hi", "ok", "more", "sure"), turns("a", "b", "c"), turns("hi", system="Be brief."),
        turns("hi", "yo", system=""), turns("hi", "yo", "and?", "no", system="You are a pirate.\nArr."),
        turns("  spaced  ", "\n\nleading lines"), turns("trailing\n", "lines\n\n"),
        turns("what is <|im_end|>?", "It is <|im_end|> a marker"), turns("<think>", "<think> r </think> x", "u2", "y"),
        turns("code?", "```python\ndef f():\n    return 1\n```\n"), turns("emoji 😀 e\u0301", "日本語 👨‍👩‍👧"),
        turns("1234", " 5678"), turns("tab\there", "\t"), turns("\r\n", "a\r\nb"),
        [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}, {"role": "assistant", "content": "three"}],
        [{"role": "user", "content": "q"}, {"role": "system", "content": "late"}, {"role": "assistant", "content": "a"}],
        [{"role": "system", "content": "only"}],
    ]


def write_chat(template, tokenizer):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    start = template.index("{% if loop.first")
    plain = template[:start] + template[template.index("{{'<|im_start|>'", start):]
    cases = []
    for messages in conversations():
        case = {"messages": messages}
        for name, source in (("smollm2", template), ("plain", plain)):
            for prompt in (False, True):
                text = environment.from_string(source).render(messages=messages, add_generation_prompt=prompt)
                key = name + ("_prompt" if prompt else "")
                case[key] = text
                if name == "smollm2":
                    case[key + "_ids"] = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append(case)
    write("chat.json", {"smollm2": template, "plain": plain, "cases": cases})


def main():
    OUT.mkdir(exist_ok=True)
    fields = {k: f.contents() for k, f in gguf.GGUFReader(sys.argv[1]).fields.items() if k.startswith("tokenizer")}
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
