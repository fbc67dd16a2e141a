"""Plain decoding, passes of several rows, prompts, batches; beside transformers and llama.cpp."""
import json
import os
import pathlib
import sys
import tempfile

import llama
from measure import MODEL, ROOT, call, cell, field, in_turn, quotient, show_table

PROMPT = ("Write a Python function that returns the n-th Fibonacci number, and explain how it "
          "works. Say what it returns for the numbers zero and one, how long it takes for large "
          "numbers, how one could make it faster with a table of earlier results, and show one "
          "call with its value.")
PROMPT_TOKENS = 109


def threads():
    return os.cpu_count()


def rate(result):
    return {"tokens_per_second": result["tokens_per_second"]} if result else None


def ours(build, model, dtype, new_tokens):
    return lambda: rate(call([build / "dflash-cpp", "generate", PROMPT, "--target", model,
                              "--proposer", "none", "--dtype", dtype, "--json", "--quiet",
                              "--max-new", new_tokens]))


def transformers(dtype, new_tokens):
    return lambda: rate(call([sys.executable, ROOT / "bench" / "transformers_decode.py", MODEL,
                              dtype, new_tokens, PROMPT]))


def plain(build, short):
    """Tokens a second without a drafter, batch 1."""
    new_tokens, rounds = (8, 1) if short else (256, 4)
    bf16 = llama.bf16_model()
    rows = {}
    groups = {"bf16": {"ours": ours(build, bf16 or MODEL, "auto", new_tokens),
                       "transformers": transformers("bf16", min(new_tokens, 32))},
              "f32": {"ours": ours(build, MODEL, "f32", new_tokens),
                      "transformers": transformers("f32", min(new_tokens, 32))},
              "blocks of the file": {"ours": ours(build, MODEL, "auto", new_tokens)}}
    if bf16:
        groups["bf16"]["llama.cpp"] = lambda: llama.decode_rate(bf16, threads(), new_tokens,
                                                                PROMPT_TOKENS)
        groups["blocks of the file"]["llama.cpp"] = lambda: llama.decode_rate(
            MODEL, threads(), new_tokens, PROMPT_TOKENS)
    for name, runners in groups.items():
        # With transformers in it a round takes minutes.
        runs = in_turn(runners, min(rounds, 2) if "transformers" in runners else rounds)
        rows[name] = field(runs, "tokens_per_second") | {
            "new_tokens": new_tokens}
    return rows


def passes(build):
    """Milliseconds of target and draft passes, in both storages."""
    out = {}
    for name, model in (("bf16", llama.bf16_model()), ("blocks of the file", MODEL)):
        if model is None:
            continue
        out[name] = {"decode": call([build / "decode_bench", model, "auto", PROMPT_TOKENS]),
                     "draft": call([build / "draft_bench", model, "auto", 256])}
        if llama.available():
            out[name]["llama.cpp"] = {"prompt": llama.prompt_rate(model, threads(), 512)}
    return out


def prompt_ids(build, prompts, folder):
    """The ids of the prompts of a task file, as our program makes them."""
    answers = pathlib.Path(folder) / "answers.jsonl"
    call([build / "dflash-cpp", "regenerate", "--prompts", prompts, "--out", answers, "--max-new",
          1, "--batch", 8, "--json", "--quiet"])
    return [json.loads(line)["prompt_ids"] for line in answers.read_text().splitlines()]


def batched_ours(build, model, prompts, batch, max_new):
    def run():
        with tempfile.TemporaryDirectory() as folder:
            report = call([build / "dflash-cpp", "regenerate", "--target", model, "--prompts",
                           prompts, "--out", f"{folder}/a.jsonl", "--batch", batch, "--max-new",
                           max_new, "--json", "--quiet"])
        return report and {"tokens_per_second": report["tokens"] / report["seconds"]}
    return run


def batched(build, short):
    """32 sequences at a time, prompts included in the time."""
    max_new, rounds, count = (8, 1, 8) if short else (128, 2, 96)
    lines = (ROOT / "prompts" / "train.jsonl").read_text().splitlines()
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        many, few = pathlib.Path(folder) / "many.jsonl", pathlib.Path(folder) / "few.jsonl"
        many.write_text("\n".join(lines[:count]) + "\n")
        few.write_text("\n".join(lines[:8]) + "\n")
        for name, model in (("bf16", llama.bf16_model()), ("blocks of the file", MODEL)):
            if model is None:
                continue
            runners = {"ours, 32": batched_ours(build, model, many, 32, max_new),
                       "ours, 1": batched_ours(build, model, few, 1, max_new)}
            if llama.available():
                ids = prompt_ids(build, many, folder)

                def peer(model=model, ids=ids):
                    with llama.Server(model, threads(), slots=32) as server:
                        return server.all_at_once(ids, max_new)
                runners["llama-server, 32"] = peer
            out[name] = field(in_turn(runners, rounds), "tokens_per_second")
    return out


def ratios(results):
    plain_rows, pass_rows = results["plain"], results["passes"]
    bf16, kept = pass_rows.get("bf16"), pass_rows.get("blocks of the file")
    batch = results["batched"].get("bf16", {})
    blocks = results["batched"].get("blocks of the file", {})
    wide = [row["of_one"] for row in bf16["decode"]["pass"]["rows"] if row["rows"] == 16] \
        if bf16 else [None]

    def to_peer(row):
        return quotient(row["ours"], row.get("llama.cpp"))
    best_ours = max((r["ours, 32"] for r in (batch, blocks) if r.get("ours, 32")),
                    key=lambda s: s["median"], default=None)
    best_peer = max((r["llama-server, 32"] for r in (batch, blocks) if r.get("llama-server, 32")),
                    key=lambda s: s["median"], default=None)
    return {"plain_bf16_vs_llamacpp_bf16": to_peer(plain_rows["bf16"]),
            "plain_gguf_vs_llamacpp_gguf": to_peer(plain_rows["blocks of the file"]),
            "plain_bf16_vs_transformers_bf16": quotient(plain_rows["bf16"]["ours"],
                                                        plain_rows["bf16"]["transformers"]),
            "plain_bf16_memory_share": bf16 and bf16["decode"]["pass"]["memory_share"],
            "verify16_vs_1": wide[0],
            "draft_vs_target_pass": bf16 and bf16["draft"]["propose"]["of_pass"],
            "batched32_vs_1": quotient(batch.get("ours, 32"), batch.get("ours, 1")),
            "batched32_vs_llama_server": quotient(best_ours, best_peer),
            "prompt_gemm_share": kept and kept["decode"]["prompt"]["gemm_share"]}


def show(results):
    show_table("plain decoding, SmolLM2-135M, batch 1, greedy, tok/s (no drafter: tau 1)",
               ["weights", "dflash-cpp", "llama.cpp", "transformers"],
               [[name] + [cell(row.get(side), "{:.1f}")
                          for side in ("ours", "llama.cpp", "transformers")]
                for name, row in results["plain"].items()])
    rows = []
    for name, row in results["passes"].items():
        made = row["decode"]["pass"]
        rows.append([name] + [cell(r["ms"]) for r in made["rows"]]
                    + [cell(made["floor_ms"]), cell(row["draft"]["propose"]["ms"]),
                       cell(row["decode"]["prompt"]["tokens_per_second"], "{:.0f}"),
                       cell(row["decode"]["prompt"]["gemm_share"])])
    show_table("milliseconds of a pass by rows; reading the weights; a draft pass; prompt tok/s "
               "and its share of the GEMM rate",
               ["weights", "1", "2", "4", "8", "16", "reading", "draft", "prompt", "share"], rows)
    show_table("many sequences, tok/s, prompts included (no drafter: tau 1)",
               ["weights", "ours, 1", "ours, 32", "llama-server 32"],
               [[name] + [cell(row.get(key), "{:.0f}")
                          for key in ("ours, 1", "ours, 32", "llama-server, 32")]
                for name, row in results["batched"].items()])
