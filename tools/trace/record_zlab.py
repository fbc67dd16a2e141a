#!/usr/bin/env python3
"""Records one block of z-lab's package `dflash` as a trace that `dflash-cpp doctor --trace` reads.

  python tools/trace/record_zlab.py --target FOLDER --drafter FOLDER --out t.safetensors
  dflash-cpp doctor --target FOLDER --drafter FOLDER --trace t.safetensors

Only forward hooks and one wrapped function: whatever your copy of the package does is what is
recorded. From Python: Recorder(model, target).run(input_ids, max_new_tokens, block, path).
The file is described in docs/TRACE.md.
"""
import argparse

import dflash.model as package
import torch
from safetensors.torch import save_file


class Recorder:
    """Watches a drafter while the package generates; keeps the block that was asked for."""

    def __init__(self, model, target):
        self.model, self.target = model, target
        self.calls, self.taps, self.fused = 0, [], []
        self.block_ids = self.kept = None
        self.hooks = [
            model.register_forward_pre_hook(self.before, with_kwargs=True),
            model.register_forward_hook(self.after, with_kwargs=True),
            model.hidden_norm.register_forward_hook(lambda m, i, out: self.fused.append(out[0])),
        ]
        self.layer_rows = {}
        for number, layer in enumerate(model.layers):
            self.hooks.append(layer.register_forward_hook(
                lambda m, i, out, number=number: self.layer_rows.__setitem__(number, out[0])))

    def before(self, module, args, kwargs):
        self.taps.append(kwargs["target_hidden"][0])

    def after(self, module, args, kwargs, output):
        self.calls += 1
        if self.calls != self.wanted:
            return
        rows = kwargs["noise_embedding"].shape[1]
        taps, fused = torch.cat(self.taps), torch.cat(self.fused)
        trace = {"taps": taps, "fused": fused, "hidden": output[0, -rows:],
                 "block.ids": self.block_ids[0],
                 "block.positions": kwargs["position_ids"][0, -rows:]}
        cache = kwargs.get("past_key_values")
        for number, value in self.layer_rows.items():
            trace[f"layers.{number}.hidden"] = value[-rows:]
            if cache is not None and cache.get_seq_length() == len(taps) + rows:
                for name, kept in (("k", cache.layers[number].keys),
                                   ("v", cache.layers[number].values)):
                    trace[f"layers.{number}.{name}"] = kept[0].transpose(0, 1)[: len(taps)]
        head = package._output_head(self.target)
        trace["logits"] = module.compute_logits(output[:, -rows:], head)[0]
        trace["proposals"] = trace["logits"][1:].argmax(-1)
        self.kept = trace

    def run(self, input_ids, max_new_tokens, block, path):
        """Generates greedily and writes the `block`-th block (from 1) to `path`."""
        self.wanted = block
        embed = package._raw_input_embeddings

        def watched(target, ids, *rest):
            self.block_ids = ids.clone()
            return embed(target, ids, *rest)

        package._raw_input_embeddings = watched
        try:
            ids = package.dflash_generate(self.model, self.target, input_ids, max_new_tokens, None)
        finally:
            package._raw_input_embeddings = embed
            for hook in self.hooks:
                hook.remove()
        if self.kept is None:
            raise SystemExit(f"only {self.calls} blocks were drafted, block {block} was asked for: "
                             "raise --max-new")
        # The block begins after its context: where the program believes the anchor is.
        anchor = int(len(self.kept["taps"]))
        trace = self.kept | {"ids": ids[0].cpu(), "anchor": torch.tensor([anchor])}
        dtype = {torch.float32: "f32"}.get(self.kept["hidden"].dtype, "bf16")
        save_file({k: v.detach().cpu().contiguous() for k, v in trace.items()}, path,
                  {"format_name": "dflash-trace", "version": "1", "program": "dflash (z-lab)",
                   "dtype": dtype})


def main():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--target", required=True)
    parser.add_argument("--gguf-file", help="of the target, when it is a GGUF file in that folder")
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--prompt", default="Write a function that reverses a string.")
    parser.add_argument("--out", required=True)
    parser.add_argument("--block", type=int, default=4, help="which block, from 1")
    parser.add_argument("--max-new", type=int, default=48)
    parser.add_argument("--dtype", default="float32", help="float32 compares sharply")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype)
    extra = {"gguf_file": args.gguf_file} if args.gguf_file else {}
    target = AutoModelForCausalLM.from_pretrained(args.target, dtype=dtype, **extra).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.target, **extra)
    model = package.DFlashDraftModel.from_pretrained(args.drafter, dtype=dtype).eval()
    text = tokenizer.apply_chat_template([{"role": "user", "content": args.prompt}],
                                         tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    Recorder(model, target).run(ids, args.max_new, args.block, args.out)
    print(f"{args.out}: block {args.block}")


if __name__ == "__main__":
    main()
