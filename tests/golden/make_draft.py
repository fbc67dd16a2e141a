"""Writes tests/golden/draft/: numbers of the drafter from independent sources.

  python tests/golden/make_draft.py reference    reference/dflash_reference.py, in f64
  python tests/golden/make_draft.py zlab         the package `dflash` of z-lab (needs transformers)
  python tests/golden/make_draft.py speculators  vllm-project/speculators
  python tests/golden/make_draft.py losses       every loss of speculators, row by row
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
OUT = HERE / "draft"
sys.path.insert(0, str(HERE.parent.parent / "reference"))
import dflash_reference as ref  # noqa: E402


def generator(seed):
    return torch.Generator().manual_seed(seed)


def normal(shape, seed):
    return torch.randn(shape, generator=generator(seed))


def make_row():
    doc = torch.tensor([0] * 9 + [1] * 14 + [2] * 3 + [-1] * 2)
    ids = torch.randint(0, 49, (len(doc),), generator=generator(11))
    loss_mask = (torch.rand(len(doc), generator=generator(12)) < 0.8).long()
    return ref.Row(ids, doc, loss_mask)


ANCHORS = torch.tensor([0, 4, 9, 15, 20, 22, 23])

CASES = {
    "full": dict(),
    "query_bidirectional": dict(layers=[ref.Layer(3, "query", False), ref.Layer()]),
    "query_causal": dict(layers=[ref.Layer(3, "query", True), ref.Layer()]),
    "anchor_bidirectional": dict(layers=[ref.Layer(2, "anchor", False), ref.Layer()]),
    "anchor_causal": dict(layers=[ref.Layer(2, "anchor", True), ref.Layer()]),
    "reduced_vocabulary": dict(draft_ids=list(range(0, 50, 3))),
    "anchor_first": dict(slot_shift=1),
}


def shared():
    """Weights and inputs of all cases; f32 values, exact in f64."""
    spec = ref.Spec()
    data = {"weight." + k: v for k, v in ref.random_weights(spec, generator(1)).items()}
    row = make_row()
    data |= {"taps": normal((len(row.ids), 40), 2), "table": normal((50, 24), 3),
             "head": normal((50, 24), 4), "teacher": normal((len(row.ids), 24), 5),
             "ids": row.ids, "doc": row.doc, "loss_mask": row.loss_mask, "anchors": ANCHORS}
    return row, data


def run_case(spec, row, data, dtype=torch.float64):
    weights = {k[7:]: v.to(dtype).requires_grad_(True)
               for k, v in data.items() if k.startswith("weight.")}
    hidden = ref.forward(spec, weights, row, ANCHORS, data["taps"].to(dtype),
                         data["table"].to(dtype))
    head = ref.head_rows(spec, data["head"].to(dtype))
    logits = hidden @ head.T
    label_row, weight = ref.labels_and_weights(spec, row, ANCHORS)
    labels, weight = ref.draft_labels(spec, row, label_row, weight)
    ce = ref.cross_entropy(logits, labels)
    loss = ref.weighted_mean(ce, weight)
    loss.backward()
    teacher_row = (label_row - 1).clamp(min=0)
    teacher_logits = data["teacher"].to(dtype)[teacher_row] @ head.T
    trained = (weight > 0).to(dtype)
    pace = ref.dpace_weights((-ce).exp(), trained)
    soft = ref.weighted_mean(ref.kl(logits, teacher_logits), weight)
    paced = ref.weighted_mean(ce, pace)
    out = {"logits": logits.detach(), "weight": weight, "label": labels, "dpace": pace,
           "losses": torch.stack([loss, soft, paced]).detach()}
    return out, {"grad." + k: v.grad.float() for k, v in weights.items()}


def write_reference():
    row, data = shared()
    save_file(data, OUT / "inputs.safetensors")
    for name, change in CASES.items():
        spec = ref.Spec(**change)
        out, grads = run_case(spec, row, data)
        save_file({k: v.contiguous() for k, v in (out | grads).items()},
                  OUT / f"{name}.safetensors")

    write_curve(row, data)


def legal_anchors(row):
    """What the trainer may draw: anchor and slot 1 supervised and in one document."""
    return torch.tensor([a for a in range(len(row.ids) - 1)
                         if row.doc[a] >= 0 and row.doc[a + 1] == row.doc[a]
                         and row.loss_mask[a] and row.loss_mask[a + 1]])


def write_curve(row, data):
    """Ten updates on one batch of all legal anchors, full attention, constant rate: in f64, and in
    f32 for what rounding alone does to such a curve."""
    spec, anchors = ref.Spec(), legal_anchors(row)
    label_row, weight = ref.labels_and_weights(spec, row, anchors)
    labels, weight = ref.draft_labels(spec, row, label_row, weight)

    def curve_of(dtype, kind):
        taps, table, head = (data[name].to(dtype) for name in ("taps", "table", "head"))

        def loss_of(weights):
            hidden = ref.forward(spec, weights, row, anchors, taps, table)
            return ref.weighted_mean(ref.cross_entropy(hidden @ head.T, labels), weight)

        weights = {k[7:]: v.to(dtype) for k, v in data.items() if k.startswith("weight.")}
        return ref.train_curve(loss_of, weights, 10, kind, 6e-3, 0.02)

    curve = {"settings": {"lr": 6e-3, "muon_lr": 0.02, "betas": [0.9, 0.95], "eps": 1e-8,
                          "clip": 1.0, "gamma": 4.0, "anchors": anchors.tolist()}}
    for kind in ("adamw", "muon"):
        curve[kind] = curve_of(torch.float64, kind)
        curve[kind + "_f32"] = curve_of(torch.float32, kind)
    (OUT / "curve.json").write_text(json.dumps(curve, indent=1) + "\n")


# --- the packages of others: weights, files and numbers are theirs ---

def allow_missing_imports():
    """Modules that the packages import and this machine lacks become empty stand-ins."""
    import importlib.abc
    import importlib.machinery
    from unittest.mock import MagicMock

    class Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        roots = {"datasets", "hs_connectors", "loguru"}

        def find_spec(self, name, path, target=None):
            if name.split(".")[0] in self.roots:
                return importlib.machinery.ModuleSpec(name, self, is_package=True)
            return None

        def create_module(self, spec):
            module = MagicMock(name=spec.name)
            module.__path__, module.__spec__ = [], spec
            return module

        def exec_module(self, module):
            pass

    sys.meta_path.append(Stub())


QWEN3 = dict(num_hidden_layers=2, hidden_size=24, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, intermediate_size=40, vocab_size=50, rms_norm_eps=1e-5,
             rope_theta=10000.0, max_position_embeddings=512, attention_bias=False,
             tie_word_embeddings=False)


def fill(model):
    spec = ref.Spec(target_hidden=24)
    weights = ref.random_weights(spec, generator(31))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    return missing, weights


def write_zlab():
    """Folders that z-lab's class saved itself, and its hidden rows of two blocks."""
    from dflash.model import DFlashDraftModel, _make_cache
    from transformers import Qwen3Config

    sliding = dict(layer_types=["sliding_attention", "full_attention"], use_sliding_window=True,
                   sliding_window=3)
    variants = {"full": {}, "sliding": sliding,
                "sliding_bidirectional": sliding | {"is_causal": False}}
    for name, keys in variants.items():
        config = Qwen3Config(**QWEN3, **keys, num_target_layers=5, block_size=4,
                             dflash_config={"target_layer_ids": [1, 3], "mask_token_id": 49})
        config._attn_implementation = "sdpa"
        model = DFlashDraftModel(config).float().eval()
        missing, _ = fill(model)
        assert not missing, missing
        folder = OUT / f"zlab_{name}"
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        taps, embed = normal((12, 48), 32), normal((2, 4, 24), 33)
        rows = []
        with torch.no_grad():
            cache = _make_cache(config) if name == "full" else None
            seen = 0
            for step, start in enumerate([7, 10]):
                fresh = taps[seen:start] if cache is not None else taps[:start]
                positions = torch.arange(start - len(fresh), start + 4)
                rows.append(model(position_ids=positions[None], noise_embedding=embed[step][None],
                                  target_hidden=fresh[None], past_key_values=cache,
                                  use_cache=cache is not None)[0])
                if cache is not None:
                    cache.crop(-(cache.get_seq_length() - start))
                    seen = start
        save_file({"taps": taps, "embed": embed, "hidden": torch.stack(rows),
                   "anchors": torch.tensor([7, 10])}, folder / "block.safetensors")


def write_speculators():
    """Logits, losses and gradients of a packed row, anchor-relative windows."""
    allow_missing_imports()
    import speculators.models.dflash.core as core
    from speculators.losses import resolve_loss_config
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.models.dflash import DFlashSpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import Qwen3Config

    row = make_row()
    anchors = torch.tensor([0, 4, 9, 15, 17, 19])   # every block ends inside its document
    taps, last = normal((len(row.ids), 48), 41), normal((len(row.ids), 24), 42)
    table, head = normal((50, 24), 43), normal((50, 24), 44)
    for name, non_causal in {"causal": False, "bidirectional": True}.items():
        tl = Qwen3Config(**QWEN3, layer_types=["sliding_attention", "full_attention"],
                         use_sliding_window=True, sliding_window=2)
        tl._attn_implementation = "eager"
        config = DFlashSpeculatorConfig(
            transformer_layer_config=tl, draft_vocab_size=50, block_size=4,
            aux_hidden_state_layer_ids=[2, 4], mask_token_id=49,
            sliding_window_non_causal=non_causal,
            speculators_config=SpeculatorsConfig(
                algorithm="dflash", default_proposal_method="greedy",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
                verifier=VerifierConfig(name_or_path=None, architectures=["Qwen3ForCausalLM"])))
        model = core.DFlashDraftModel(config).float()
        _, weights = fill(model)
        with torch.no_grad():
            model.embed_tokens.weight.copy_(table)
            model.lm_head.weight.copy_(head)
            model.verifier_lm_head.weight.copy_(head)
            model.verifier_norm.weight.fill_(1.0)
        core.select_anchors = lambda *_: (anchors, torch.ones(len(anchors), dtype=torch.bool))
        common = dict(hidden_states=taps[None], input_ids=row.ids[None],
                      loss_mask=row.loss_mask[None], verifier_last_hidden_states=last[None],
                      document_ids=row.doc[None], position_ids=row.positions()[None],
                      max_anchors=len(anchors))
        out = {"weight." + k: v for k, v in weights.items()}
        out |= {"taps": taps, "last": last, "table": table, "head": head, "ids": row.ids,
                "doc": row.doc, "loss_mask": row.loss_mask, "anchors": anchors}
        _, logits, targets, mask, _ = model._backbone_forward(
            **{k: v for k, v in common.items() if k != "max_anchors"}, max_anchors=len(anchors))
        out |= {"logits": logits[0].detach(), "teacher_logits": targets[0].detach(),
                "mask": mask[0].long()}
        decay = "fixed-exp-decay"
        for loss, kind in [("ce", decay), ("kl_div", decay), ("ce", "dpace")]:
            model.zero_grad()
            _, value, _ = model(**common, loss_config=resolve_loss_config(loss, "eager"),
                                gamma=4.0, per_position_loss_weight=kind, dpace_alpha=0.5)
            key = "dpace" if kind == "dpace" else loss
            out["loss." + key] = value.detach().reshape(1)
            value.backward()
            for k, p in model.named_parameters():
                if p.grad is not None:
                    out[f"grad.{key}.{k}"] = p.grad.clone()
        save_file({k: v.contiguous() for k, v in out.items()},
                  OUT / f"speculators_{name}.safetensors")


def write_losses():
    """Every loss of speculators and its gradient with respect to hidden rows, one row a slot:
    near teachers, far ones (overlaps below nla's floor too) and some between."""
    allow_missing_imports()
    from speculators.losses import resolve_loss_config

    head = normal((50, 24), 51)
    hidden = normal((24, 24), 52)
    spread = torch.tensor([0.05, 0.3, 1.0, 3.0]).repeat(6)[:, None]
    teacher = hidden + spread * normal((24, 24), 53)
    teacher[-2:] = -4 * hidden[-2:]
    hidden[-2:] *= 4
    out = {"head": head, "hidden": hidden, "teacher": teacher,
           "label": (teacher @ head.T).argmax(-1)}
    for name in ("ce", "kl_div", "rkl", "jsd", "tv", "nla", "lk_hybrid"):
        function, _ = resolve_loss_config(name, "eager")[name]
        x = hidden.clone().requires_grad_(True)
        loss = function((x @ head.T)[None], (teacher @ head.T)[None])[0]
        loss.sum().backward()
        out |= {f"loss.{name}": loss.detach(), f"grad.{name}": x.grad}
    assert out["grad.nla"][-2:].abs().max() == 0  # the floor is in the case
    save_file({k: v.contiguous() for k, v in out.items()}, OUT / "speculators_losses.safetensors")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for part in sys.argv[1:] or ["reference"]:
        globals()["write_" + part]()
