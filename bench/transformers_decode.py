"""Plain greedy decoding of SmolLM2 in transformers: tokens a second, as JSON.

    transformers_decode.py MODEL.gguf [bf16|f32] [new tokens] [prompt]
"""
import json
import pathlib
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main() -> None:
    path = pathlib.Path(sys.argv[1])
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[sys.argv[2]]
    new_tokens = int(sys.argv[3])
    folder, name = str(path.parent), path.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    dense = GgufConfig(dequantize=True)  # else it may stay packed, and compute in f32
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=dtype, quantization_config=dense).eval()
    messages = [{"role": "user", "content": sys.argv[4]}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")
    ids = ids["input_ids"] if not torch.is_tensor(ids) else ids
    rates = []
    with torch.no_grad():
        for _ in range(3):
            past, token, seconds = None, ids, 0.0
            out = model(token, use_cache=True)
            past, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
            start = time.perf_counter()
            for _ in range(new_tokens - 1):
                out = model(token, past_key_values=past, use_cache=True)
                past, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
            seconds = time.perf_counter() - start
            rates.append((new_tokens - 1) / seconds)
    print(json.dumps({"tokens_per_second": statistics.median(rates), "all": rates,
                      "prompt_tokens": int(ids.shape[1]),
                      "weights": str(model.model.layers[0].mlp.up_proj.weight.dtype)}))


if __name__ == "__main__":
    main()
