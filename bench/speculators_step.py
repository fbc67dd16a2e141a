#!/usr/bin/env python3
"""One training step of the `speculators` package's DFlash drafter at the sizes of train_bench.cpp.

Its own model, loss and autocast as its trainer runs them (sdpa attention, AdamW or Muon as its
optimizers module builds them, clip 1.0), on random data. Prints one JSON line.

  python bench/speculators_step.py [--compute bf16|f32] [--draft-vocab 0|8192]
                                   [--optimizer adamw|muon] [--layers 2] [--block 8]
                                   [--anchors 64] [--tokens 512]
"""
import argparse
import contextlib
import importlib.abc
import importlib.machinery
import json
import resource
import statistics
import sys
import time
import types
from unittest import mock

import torch

VOCAB, WIDTH, TAPS = 49152, 576, [1, 8, 14, 20, 27]


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages that speculators imports but a step never calls."""

    NAMES = ("datasets", "accelerate", "openai", "loguru", "eval_type_backport", "deepspeed",
             "rich", "typer", "vllm", "compressed_tensors", "mlflow", "trackio", "wandb",
             "tensorboard", "pydantic_settings", "hs_connectors", "psutil", "httpx",
             "requests", "protobuf", "matplotlib")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.NAMES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda attribute: mock.MagicMock(name=attribute)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Stubs())  # last: an installed package is used


def make_model(options):
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Config

    layer = Qwen3Config(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=1536,
        num_hidden_layers=options.layers, num_attention_heads=9, num_key_value_heads=3, head_dim=64,
        rms_norm_eps=1e-5, rope_theta=100000.0, max_position_embeddings=8192, attention_bias=False)
    layer._attn_implementation = "sdpa"
    reduced = options.draft_vocab or VOCAB
    config = DFlashSpeculatorConfig(
        transformer_layer_config=layer, draft_vocab_size=reduced,
        block_size=options.block,
        aux_hidden_state_layer_ids=TAPS, mask_token_id=16,
        speculators_config=SpeculatorsConfig(
            algorithm="dflash",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=options.block - 1)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"])))
    model = DFlashDraftModel(config)
    with torch.no_grad():
        for module in (model.embed_tokens, model.lm_head, model.verifier_lm_head):
            module.weight.normal_(0, 0.05)
            module.weight.requires_grad_(False)
        if reduced != VOCAB:
            chosen = torch.zeros(VOCAB, dtype=torch.bool)
            chosen[:reduced] = True
            model.load_vocab_mappings(chosen, torch.zeros(reduced, dtype=torch.long))
    return model


def make_optimizers(model, name):
    from speculators.train.optimizers import build_optimizers

    config = types.SimpleNamespace(
        optimizer=name, lr=6e-4, weight_decay=0.0, muon_lr=0.02, muon_momentum=0.95,
        muon_weight_decay=0.0, muon_ns_steps=5, muon_adjust_lr_fn="original")
    return build_optimizers(model, config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compute", choices=("bf16", "f32"), default="bf16")
    parser.add_argument("--draft-vocab", type=int, default=0)
    parser.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw")
    parser.add_argument("--loss", default="ce")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--anchors", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    options = parser.parse_args()
    from speculators.losses import resolve_loss_config

    torch.manual_seed(1)
    model = make_model(options)
    model.train()
    optimizers = make_optimizers(model, options.optimizer)
    trainable = [p for p in model.parameters() if p.requires_grad]
    tokens = options.tokens
    batch = dict(
        hidden_states=torch.randn(1, tokens, len(TAPS) * WIDTH, dtype=torch.bfloat16),
        input_ids=torch.randint(0, VOCAB, (1, tokens)), loss_mask=torch.ones(1, tokens),
        verifier_last_hidden_states=torch.randn(1, tokens, WIDTH, dtype=torch.bfloat16),
        document_ids=torch.zeros(1, tokens, dtype=torch.long))
    if options.compute == "f32":
        batch = {k: v.float() if v.dtype == torch.bfloat16 else v for k, v in batch.items()}
    loss_config = resolve_loss_config(options.loss, "eager")
    seconds = []
    for step in range(options.steps + 2):
        start = time.perf_counter()
        cast = (torch.autocast("cpu", dtype=torch.bfloat16) if options.compute == "bf16"
                else contextlib.nullcontext())
        with cast:
            _, loss, _ = model(**batch, loss_config=loss_config, max_anchors=options.anchors)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        assert torch.isfinite(loss)
        if step >= 2:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    print(json.dumps({
        "program": "speculators", "compute": options.compute,
        "vocabulary": options.draft_vocab or VOCAB, "optimizer": options.optimizer,
        "loss": options.loss, "layers": options.layers, "block": options.block,
        "anchors": options.anchors, "tokens": tokens,
        "threads": torch.get_num_threads(), "median_seconds": median,
        "anchors_per_second": options.anchors / median,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
