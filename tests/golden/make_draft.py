"""Writes tests/golden/draft/: numbers of the drafter from independent sources.

  python tests/golden/make_draft.py reference    reference/dflash_reference.py, in f64
  python tests/golden/make_draft.py zlab         the package `dflash` of z-lab (needs transformers)
  python tests/golden/make_draft.py speculators  vllm-project/speculators
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
    hidden = ref.forward(spec, weights, row, ANCHORS, data["taps"].to(dtype), data["table"].to(dtype))
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
    out = {"logits": logits.detach(), "weight": weight, "label": labels,
           "losses": torch.stack([loss.detach(),
                                  ref.weighted_mean(ref.kl(logits, teacher_logits), weight).detach(),
                                  ref.weighted_mean(ce, pace).detach()]),
           "dpace": pace}
    return out, {"grad." + k: v.grad.float() for k, v in weights.items()}


def write_reference():
    row, data = shared()
    save_file(data, OUT / "inputs.safetensors")
    for name, change in CASES.items():
        spec = ref.Spec(**change)
        out, grads = run_case(spec, row, data)
        save_file({k: v.contiguous() for k, v in (out | grads).items()},
                  OUT / f"{name}.safetensors")

    # Ten updates on one batch, full attention.
    spec = ref.Spec()
    label_row, weight = ref.labels_and_weights(spec, row, ANCHORS)
    labels, weight = ref.draft_labels(spec, row, label_row, weight)

    def loss_of(weights):
        hidden = ref.forward(spec, weights, row, ANCHORS, data["taps"].double(),
                             data["table"].double())
        return ref.weighted_mean(ref.cross_entropy(hidden @ data["head"].double().T, labels), weight)

    weights = {k[7:]: v.double() for k, v in data.items() if k.startswith("weight.")}
    curve = {"adamw": ref.train_curve(loss_of, weights, 10, "adamw", 6e-3),
             "muon": ref.train_curve(loss_of, weights, 10, "muon", 6e-3, 0.02),
             "settings": {"lr": 6e-3, "muon_lr": 0.02, "betas": [0.9, 0.95], "eps": 1e-8,
                          "clip": 1.0, "gamma": 4.0}}
    (OUT / "curve.json").write_text(json.dumps(curve, indent=1) + "\n")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for part in sys.argv[1:] or ["reference"]:
        globals()["write_" + part]()
