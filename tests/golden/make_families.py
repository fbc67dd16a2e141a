"""Writes the goldens of the Qwen families for tests/target with transformers (development only).

  make_families.py tiny            random folders with hidden states and logits (f32 and bf16)
  make_families.py layout          64 blocks as in Qwen3.6-27B, weights by formula: taps only
  make_families.py gguf LLAMA_CPP  some folders as GGUF, by the converter of that source tree
"""

import json
import sys
from pathlib import Path

import torch
from make_target import OUT, outputs, write_folder
from safetensors.torch import save_file
from transformers import (Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig,
                          Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)

IDS = [3, 17, 63, 0, 41, 41, 8, 60, 2, 33, 12, 5, 29, 1, 50, 18]
BASE = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
        "eos_token_id": 2}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
HYBRID = {"num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
          "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4}
ROPE = {"rope_type": "default", "rope_theta": 1e6}
PARTIAL = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
           "mrope_section": [11, 11, 10], "mrope_interleaved": True}
YARN = {**ROPE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
# name -> (family, changes to BASE)
CASES = {
    "qwen3": ("qwen3", dict(rope_parameters=ROPE)),
    "qwen3_tied_bias": ("qwen3", dict(tie_word_embeddings=True, attention_bias=True,
                                      rope_parameters=ROPE)),
    "qwen3_yarn": ("qwen3", dict(rope_parameters=YARN)),
    "qwen3_yarn_mscale": ("qwen3", dict(rope_parameters={
        **YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False, "beta_fast": 8.0})),
    "qwen3_linear": ("qwen3", dict(rope_parameters={**ROPE, "rope_type": "linear",
                                                    "factor": 4.0})),
    "qwen3_sliding": ("qwen3", dict(use_sliding_window=True, sliding_window=6,
                                    max_window_layers=1, rope_parameters=ROPE)),
    "qwen3_moe": ("qwen3_moe", dict(norm_topk_prob=True, rope_parameters=ROPE, **EXPERTS)),
    "qwen3_moe_mixed": ("qwen3_moe", dict(num_hidden_layers=3, norm_topk_prob=False,
                                          mlp_only_layers=[0], rope_parameters=ROPE, **EXPERTS)),
    "qwen35": ("qwen3_5", dict(rope_parameters=PARTIAL, **HYBRID)),
    "qwen35_text": ("qwen3_5", dict(HYBRID, num_hidden_layers=3, tie_word_embeddings=True,
                                    linear_num_value_heads=2, linear_value_head_dim=12,
                                    linear_conv_kernel_dim=3, rope_parameters={
                                        **PARTIAL, "partial_rotary_factor": 0.5},
                                    layer_types=["full_attention", "linear_attention",
                                                 "linear_attention"])),
    "qwen35_moe": ("qwen3_5_moe", dict(shared_expert_intermediate_size=24,
                                       rope_parameters=PARTIAL, **HYBRID, **EXPERTS)),
}
FAMILIES = {"qwen3": (Qwen3Config, Qwen3ForCausalLM, "Qwen3ForCausalLM"),
            "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, "Qwen3MoeForCausalLM"),
            "qwen3_5": (Qwen3_5TextConfig, Qwen3_5ForCausalLM, "Qwen3_5ForConditionalGeneration"),
            "qwen3_5_moe": (Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM,
                            "Qwen3_5MoeForConditionalGeneration")}
WRAPPED = ("qwen35", "qwen35_moe")  # as multi-modal checkpoints: nested config, other prefix
FUSED = ("qwen3_moe_mixed", "qwen35_moe")  # stacked experts
GGUFS = ("qwen3", "qwen3_yarn", "qwen3_linear", "qwen3_moe", "qwen35", "qwen35_moe")


def build(family, changes):
    config_class, model_class, _ = FAMILIES[family]
    keys = {**BASE, **changes}
    if family == "qwen3_5_moe":
        keys.pop("intermediate_size")
    config = config_class(**json.loads(json.dumps(keys)))
    config._attn_implementation = "eager"
    return keys, model_class(config).eval()


def is_centred(family, name):
    return family.startswith("qwen3_5") and not name.endswith("linear_attn.norm.weight")


def randomise(model, family, seed):
    """Values that bf16 holds exactly, so that files of any type say the same."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("norm.weight"):
            value = (0 if is_centred(family, name) else 1) + 0.1 * noise
        elif name.endswith(("bias", "dt_bias")):
            value = 0.3 * noise
        elif name.endswith("A_log"):
            value = noise - 1
        elif name.endswith("conv1d.weight"):
            value = 0.5 * noise
        elif "embed" in name:
            value = noise
        else:
            value = noise / p.shape[-1] ** 0.5
        p.data = value.bfloat16().float()
    model.tie_weights()


def step_logits(model, ids):
    """Token by token through the cache; must agree with one pass."""
    rows, cache = [], None
    with torch.no_grad():
        for token in ids:
            out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            rows.append(out.logits[0, -1])
    return torch.stack(rows)


def file_tensors(name, family, model):
    """State dict as checkpoints spell it: experts apart unless FUSED, prefix of the wrapper, and
    what a loader has to leave out."""
    tensors = {}
    for key, value in model.state_dict().items():
        if key == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        value = value.detach().bfloat16().clone()
        if ".experts." in key and name not in FUSED:
            stem, tail = key.split(".experts.")
            for e, rows in enumerate(value):
                parts = {"down_proj": rows} if tail == "down_proj" else dict(
                    zip(("gate_proj", "up_proj"), rows.chunk(2)))
                for part, matrix in parts.items():
                    tensors[f"{stem}.experts.{e}.{part}.weight"] = matrix.contiguous()
        else:
            tensors[key] = value
    if name not in WRAPPED:
        return tensors
    tensors = {k.replace("model.", "model.language_model.", 1): v for k, v in tensors.items()}
    tensors["model.visual.patch_embed.proj.weight"] = torch.zeros(2, 2).bfloat16()
    if name == "qwen35":
        tensors.update(mtp_tensors(tensors))
    return tensors


def mtp_tensors(tensors):
    """One block for multi-token prediction, as the converter wants it."""
    last, width = "model.language_model.layers.3.", BASE["hidden_size"]
    extra = {"mtp.layers.0." + k[len(last):]: v.clone() for k, v in tensors.items()
             if k.startswith(last)}
    extra["mtp.fc.weight"] = torch.zeros(width, 2 * width).bfloat16()
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        extra[f"mtp.{norm}.weight"] = torch.zeros(width).bfloat16()
    return extra


def config_json(name, family, keys):
    text = {**keys, "model_type": family, "hidden_act": "silu", "attention_dropout": 0.0,
            "initializer_range": 0.02, "use_cache": True, "dtype": "bfloat16"}
    architecture = FAMILIES[family][2]
    if not family.startswith("qwen3_5"):
        text.setdefault("use_sliding_window", False)
        text.setdefault("sliding_window", 4096 if name == "qwen3" else None)
        if name == "qwen3_linear":  # the spelling of older files
            rope = text.pop("rope_parameters")
            text.update(rope_theta=rope["rope_theta"],
                        rope_scaling={"type": "linear", "factor": rope["factor"]})
        return {**text, "architectures": [architecture]}
    text.update(attn_output_gate=True, full_attention_interval=4, mamba_ssm_dtype="float32",
                mtp_num_hidden_layers=1 if name == "qwen35" else 0,
                mtp_use_dedicated_embeddings=False, mlp_only_layers=[],
                model_type=family + "_text")
    if name not in WRAPPED:
        return {**text, "architectures": [architecture]}
    text.pop("tie_word_embeddings")
    return {"architectures": [architecture], "model_type": family, "image_token_id": 60,
            "video_token_id": 61, "vision_start_token_id": 58, "vision_end_token_id": 59,
            "tie_word_embeddings": False, "transformers_version": "5.1.0", "text_config": text,
            "vision_config": {"model_type": family, "depth": 1}}


def tiny():
    for seed, (name, (family, changes)) in enumerate(CASES.items()):
        keys, model = build(family, changes)
        randomise(model, family, 100 + seed)
        shards = "sharded" if name == "qwen35" else name
        write_folder(OUT / name, shards, config_json(name, family, keys),
                     file_tensors(name, family, model))
        golden = {f"f32.{k}": v for k, v in outputs(model, IDS).items()}
        steps = step_logits(model, IDS)
        assert torch.allclose(steps, golden["f32.logits"], atol=1e-4), name
        golden["f32.step_logits"] = steps
        low = outputs(model.bfloat16(), IDS)
        golden.update({f"bf16.{k}": low[k] for k in ("normed", "logits")})
        golden["ids"] = torch.tensor(IDS)
        save_file({k: v.contiguous() for k, v in golden.items()}, OUT / f"{name}.safetensors",
                  metadata={"format": "pt"})
        print(name, sum(f.stat().st_size for f in (OUT / name).iterdir()),
              (OUT / f"{name}.safetensors").stat().st_size)


def formula(count, number):
    """Uniform in (-1, 1) from element and tensor number; tests/target repeats it."""
    x = torch.arange(count, dtype=torch.int64) * 2654435761 + (number + 1) * 974711
    x = x & 0xFFFFFFFF
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 73244475) & 0xFFFFFFFF
    x = x ^ (x >> 16)
    return (x.double() / 2**31 - 1).float()


def layout():
    """Order of tensors: sorted by name without the prefix "model."."""
    keys, model = build("qwen3_5", dict(
        HYBRID, hidden_size=16, intermediate_size=16, num_hidden_layers=64, head_dim=8,
        num_attention_heads=6, num_key_value_heads=1, linear_num_key_heads=1,
        linear_num_value_heads=3, rope_parameters={**PARTIAL, "partial_rotary_factor": 0.5}))
    names = {n.removeprefix("model."): p for n, p in model.named_parameters()}
    for number, name in enumerate(sorted(names)):
        p = names[name]
        values = formula(p.numel(), number).reshape(p.shape)
        if name.endswith("norm.weight"):
            values = (0 if is_centred("qwen3_5", name) else 1) + 0.1 * values
        elif name.endswith("A_log"):
            values = values - 1
        elif not name.startswith("embed") and not name.endswith("dt_bias"):
            values = values * (1.0 / p.shape[-1] ** 0.5)
        p.data = values
    ids = [(i * i * 7 + i * 29 + 3) % 64 for i in range(70)]
    out = outputs(model, ids)
    rows = [0, 1, 2, 3, 40, 62, 63, 64, 65, 69]
    golden = {f"tap.{t}": out[f"hidden.{t + 1}"][rows] for t in (1, 16, 31, 46, 61)}
    golden.update({"rows": torch.tensor(rows), "ids": torch.tensor(ids),
                   "logits": out["logits"][rows]})
    save_file({k: v.contiguous() for k, v in golden.items()}, OUT / "qwen36_layout.safetensors",
              metadata={"format": "pt"})
    print({k: float(v.abs().max()) for k, v in golden.items()})


def gguf_files(llama_cpp):
    """The converter's own tensor code; only its vocabulary (there is none here) is left out."""
    sys.path[:0] = [llama_cpp, str(Path(llama_cpp) / "gguf-py")]
    import gguf
    from conversion import get_model_class
    for name in GGUFS:
        family = CASES[name][0]
        model_class = get_model_class(FAMILIES[family][2])
        model_class.set_vocab = lambda self: self.gguf_writer.add_eos_token_id(2)
        if hasattr(model_class, "no_mtp"):
            model_class.no_mtp = name != "qwen35"
        model = model_class(OUT / name, gguf.LlamaFileType.MOSTLY_BF16, OUT / f"{name}.gguf",
                            eager=True)
        model.write()
        print(name, (OUT / f"{name}.gguf").stat().st_size)


if __name__ == "__main__":
    torch.manual_seed(0)
    if sys.argv[1] == "gguf":
        gguf_files(sys.argv[2])
    else:
        {"tiny": tiny, "layout": layout}[sys.argv[1]]()
