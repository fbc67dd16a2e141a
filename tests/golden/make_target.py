"""Writes the goldens of tests/target with transformers (development only).

  make_target.py tiny    random 2-layer Llama folders with logits and hidden states (f32 and bf16)
  make_target.py gguf    two of these folders as GGUF files (q/k rows permuted as converters do)
  make_target.py smol    SmolLM2-135M-Instruct: taps, top logits, 20 greedy continuations
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent
OUT = HERE / "target"
ASSETS = HERE.parent.parent / "assets"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
BASE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
# name -> changes to BASE, and how the folder is written
CASES = {
    "gqa": dict(rope_theta=10000.0),
    "mha": dict(num_key_value_heads=4, rope_theta=500000.0, eos_token_id=[2, 5]),
    "mqa": dict(num_key_value_heads=1, rope_theta=100000.0),
    "head_dim": dict(hidden_size=40, head_dim=16, rope_theta=10000.0),
    "attention_bias": dict(attention_bias=True, rope_theta=10000.0),
    "mlp_bias": dict(mlp_bias=True, rope_theta=10000.0),
    "tied": dict(tie_word_embeddings=True, rope_theta=10000.0),
    "llama3_v4": dict(rope_theta=500000.0, rope_scaling=LLAMA3),
    "llama3_v5": dict(rope_theta=500000.0, rope_scaling=LLAMA3),
    "sharded": dict(rope_theta=10000.0),
    "half": dict(rope_theta=10000.0),
    "bfloat": dict(rope_theta=10000.0),
}
IDS = [3, 17, 95, 0, 41, 41, 8, 60, 77, 2, 33, 12, 90, 5, 64, 29, 1, 50, 18, 71, 44, 9, 83, 26]


def parameters(changes):
    """Keywords of LlamaConfig, with the rope in the form this version of transformers takes."""
    keys = {**BASE, **changes}
    rope = {"rope_type": "default", **keys.pop("rope_scaling", {})}
    rope["rope_theta"] = keys.pop("rope_theta")
    return {**keys, "rope_parameters": rope}


def config_json(name, changes):
    """config.json as v4 wrote it (rope_theta, rope_scaling) or as v5 does (rope_parameters)."""
    keys = {**BASE, **changes, "model_type": "llama", "architectures": ["LlamaForCausalLM"],
            "transformers_version": "4.46.0", "torch_dtype": "float32", "use_cache": True,
            "initializer_range": 0.02, "pretraining_tp": 1, "attention_dropout": 0.0}
    if name.endswith("_v5") or name == "tied":
        rope = {"rope_type": "default", **keys.pop("rope_scaling", {})}
        rope["rope_theta"] = keys.pop("rope_theta")
        keys.pop("torch_dtype")
        keys.update(rope_parameters=rope, transformers_version="5.1.0", dtype="float32")
    else:
        keys.setdefault("rope_scaling", None)
    return keys


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in name:
            p.data = 1 + 0.1 * noise
        elif name.endswith("bias"):
            p.data = 0.3 * noise
        elif "embed" in name:
            p.data = noise
        else:
            p.data = noise / p.shape[1] ** 0.5
    model.tie_weights()


def write_folder(folder, name, config, tensors):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}) + "\n")
    if name != "sharded":
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map, shards = {}, ({}, {})
    for position, (key, value) in enumerate(sorted(tensors.items())):
        shards[position % 2][key] = value
        weight_map[key] = f"model-0000{position % 2 + 1}-of-00002.safetensors"
    for number, shard in enumerate(shards):
        save_file(shard, folder / f"model-0000{number + 1}-of-00002.safetensors",
                  metadata={"format": "pt"})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def outputs(model, ids):
    """hidden.0 = embedding, hidden.i+1 = raw residual after block i (hooks: the list that
    transformers returns ends in the normed state), last = normed, logits."""
    raw = []
    hooks = [layer.register_forward_hook(
        lambda _m, _i, out: raw.append(out[0] if isinstance(out, tuple) else out))
        for layer in model.model.layers]
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    states = [out.hidden_states[0], *raw]
    for i in range(len(raw) - 1):
        assert torch.equal(out.hidden_states[i + 1], raw[i])
    result = {f"hidden.{i}": s.reshape(len(ids), -1).float() for i, s in enumerate(states)}
    result["normed"] = out.hidden_states[-1][0].float()
    result["logits"] = out.logits[0].float()
    return result


def tiny():
    for seed, (name, changes) in enumerate(CASES.items()):
        model = LlamaForCausalLM(LlamaConfig(**parameters(changes))).eval()
        randomise(model, seed)
        tensors = {k: v.detach().clone() for k, v in model.state_dict().items()}
        if changes.get("tie_word_embeddings"):
            tensors.pop("lm_head.weight")
        storage = {"half": torch.float16, "bfloat": torch.bfloat16}.get(name, torch.float32)
        tensors = {k: v.to(storage) for k, v in tensors.items()}
        write_folder(OUT / name, name, config_json(name, changes), tensors)
        model.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
        model.tie_weights()
        golden = {f"f32.{k}": v for k, v in outputs(model, IDS).items()}
        golden.update({f"bf16.{k}": v for k, v in outputs(model.bfloat16(), IDS).items()})
        golden["ids"] = torch.tensor(IDS)
        save_file({k: v.contiguous() for k, v in golden.items()}, OUT / f"{name}.safetensors",
                  metadata={"format": "pt"})
        print(name, sum(f.stat().st_size for f in (OUT / name).iterdir()))


def permute(rows, heads):
    """Half-split rows of each head to the interleaved order of GGUF's llama architecture."""
    pairs = rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1)
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def gguf_files():
    from gguf import GGMLQuantizationType, GGUFWriter, quantize
    stems = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names = {"model.embed_tokens.weight": "token_embd.weight",
             "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    for case in ("gqa", "attention_bias", "llama3_v4", "tied"):
        config = json.loads((OUT / case / "config.json").read_text())
        writer = GGUFWriter(OUT / f"{case}.gguf", "llama")
        writer.add_block_count(2)
        writer.add_context_length(128)
        writer.add_embedding_length(32)
        writer.add_feed_forward_length(48)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(config.get("rope_theta") or 10000.0)
        writer.add_rope_dimension_count(8)
        writer.add_eos_token_id(2)
        writer.add_eot_token_id(7)
        for name, tensor in load_file(OUT / case / "model.safetensors").items():
            value = tensor.numpy()
            if ".q_proj." in name:
                value = permute(value, 4)
            if ".k_proj." in name:
                value = permute(value, 2)
            short = names.get(name)
            if short is None:
                _, _, layer, tail = name.split(".", 3)
                stem, kind = tail.rsplit(".", 1)
                short = f"blk.{layer}.{stems[stem]}.{kind}"
            if case == "tied" and value.ndim == 2 and value.shape[1] % 32 == 0:
                kind = GGMLQuantizationType.Q8_0 if "embd" in short else GGMLQuantizationType.Q4_1
                writer.add_tensor(short, quantize(value, kind), raw_dtype=kind)
            else:
                writer.add_tensor(short, value.copy())
        if case == "llama3_v4":
            writer.add_tensor("rope_freqs.weight", llama3_factors(config).numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def llama3_factors(config):
    """What converters store for llama3 scaling: unscaled over scaled frequency, one a pair."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    model = LlamaConfig(**parameters(CASES["llama3_v4"]))
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](model, "cpu")
    plain = config["rope_theta"] ** -(torch.arange(0, 8, 2).float() / 8)
    return (plain / scaled).float()


PROMPTS = [
    "What is the capital of France?", "Write a haiku about the sea.",
    "Explain photosynthesis to a child.", "List five fruits that are red.",
    "Write a Python function that reverses a string.", "What is 17 times 23?",
    "Translate 'good morning' into Spanish.", "Why is the sky blue?",
    "Give me a recipe for pancakes.", "Who wrote Romeo and Juliet?",
    "Write a short story about a robot who learns to paint.", "What causes the tides?",
    "Summarise the plot of Cinderella in three sentences.", "How do I sort a list in Python?",
    "Name three planets and one fact about each.", "Write an e-mail asking for a day off.",
    "What is the difference between a virus and a bacterium?",
    "Write a C function that computes the factorial of n.",
    "Suggest a name for a black cat and say why.", "How many legs does a spider have?",
]


def smol_model():
    """The GGUF, dequantised by the gguf package, its q/k rows put back to the half-split order."""
    from gguf import GGUFReader, dequantize
    config = LlamaConfig(hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, vocab_size=49152,
                         max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True,
                         rope_parameters={"rope_type": "default", "rope_theta": 100000.0})
    stems = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    names = {"token_embd.weight": "model.embed_tokens.weight",
             "output_norm.weight": "model.norm.weight"}
    tensors = {}
    for tensor in GGUFReader(ASSETS / GGUF).tensors:
        value = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        name = names.get(tensor.name)
        if name is None:
            _, layer, stem, kind = tensor.name.split(".")
            name = f"model.layers.{layer}.{stems[stem]}.{kind}"
            if stem in ("attn_q", "attn_k"):
                order = [2 * (row % 32) + row // 32 for row in range(64)]
                value = value.reshape(-1, 64, 576)[:, order].reshape(-1, 576)
        tensors[name] = value
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.eval()


def smol():
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(ASSETS, gguf_file=GGUF)
    model = smol_model()
    prompts = [f"<|im_start|>user\n{p}<|im_end|>\n<|im_start|>assistant\n" for p in PROMPTS]
    ids = [tokenizer(p, add_special_tokens=False)["input_ids"] for p in prompts]
    golden = {}
    taps = [1, 8, 14, 20, 27]
    for n in range(3):
        out = outputs(model, ids[n])
        rows = [0, len(ids[n]) // 2, len(ids[n]) - 1]
        columns = list(range(0, 576, 9))
        golden[f"ids.{n}"] = torch.tensor(ids[n])
        tapped = torch.stack([out[f"hidden.{t + 1}"][rows] for t in taps])
        golden[f"taps.{n}"] = tapped[..., columns]
        golden[f"last.{n}"] = out["hidden.30"][rows][:, columns]
        top = out["logits"][rows].topk(8)
        golden[f"top_ids.{n}"], golden[f"top_logits.{n}"] = top.indices, top.values
    save_file({k: v.contiguous() for k, v in golden.items()}, OUT / "smol_taps.safetensors",
              metadata={"format": "pt"})
    print("taps written", flush=True)
    texts = []
    for n, prompt in enumerate(ids):
        text, margins = greedy(model, prompt, 128)
        texts.append({"prompt": prompt, "tokens": text, "margins": margins})
        print(n, min(margins), repr(tokenizer.decode(text))[:100], flush=True)
        lines = ",\n".join(json.dumps(t, separators=(",", ":")) for t in texts)
        (OUT / "smol_greedy.json").write_text("[\n" + lines + "\n]\n")


def greedy(model, prompt, count):
    """Exactly `count` tokens (end tokens do not stop), with the top-two margin of every choice."""
    text, margins, cache, feed = [], [], None, torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(count):
            out = model(feed, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            top = out.logits[0, -1].topk(2)
            text.append(int(top.indices[0]))
            margins.append(round(float(top.values[0] - top.values[1]), 5))
            feed = torch.tensor([[text[-1]]])
    return text, margins


if __name__ == "__main__":
    torch.manual_seed(0)
    {"tiny": tiny, "gguf": gguf_files, "smol": smol}[sys.argv[1]]()
