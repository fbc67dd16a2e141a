#!/usr/bin/env python3
"""Records one block of a `speculators` DFlash training step as a trace for `dflash-cpp doctor
--trace`: what the trainer feeds the drafter, what a slot sees, what comes out, labels and weights.

From your training script, with the batch it has just made:

  from record_speculators import record
  record(model, batch, anchor=137, path="t.safetensors")

`batch` holds what the model's forward takes: hidden_states [1, T, F], input_ids, loss_mask,
verifier_last_hidden_states, document_ids, position_ids. `anchor` is a row of the packed sequence.
The file is described in docs/TRACE.md.
"""
import torch
from safetensors.torch import save_file


def visible(mask_mod, rows, size, begin, device):
    """[context begin, end, slots begin, end) of every slot, context counted in its document."""
    zero = torch.tensor(0, device=device)
    seen = []
    for slot in range(size):
        row = [bool(mask_mod(zero, zero, torch.tensor(slot, device=device),
                             torch.tensor(key, device=device))) for key in range(rows + size)]
        context = [k for k in range(rows) if row[k]]
        slots = [k for k in range(size) if row[rows + k]]
        span = [context[0] - begin, context[-1] + 1 - begin] if context else [0, 0]
        seen.append(span + [slots[0], slots[-1] + 1])
    return torch.tensor(seen)


def record(model, batch, anchor, path):
    """Runs the model's own forward on one anchor and writes its stages."""
    import speculators.models.dflash.core as core

    ids, documents = batch["input_ids"][0], batch["document_ids"][0]
    begin = int((documents == documents[anchor]).nonzero()[0])
    end = int((documents == documents[anchor]).nonzero()[-1]) + 1
    size, rows = model.block_size, len(ids)
    trace, hooks = {}, []
    hooks.append(model.hidden_norm.register_forward_hook(
        lambda m, i, out: trace.__setitem__("fused", out[0, begin:anchor])))
    hooks.append(model.embed_tokens.register_forward_pre_hook(
        lambda m, args: trace.__setitem__("block.ids", args[0][0])))
    for number, layer in enumerate(model.layers):
        hooks.append(layer.register_forward_hook(
            lambda m, i, out, number=number: trace.__setitem__(
                f"layers.{number}.hidden", (out if torch.is_tensor(out) else out[0])[0])))
        hooks.append(layer.register_forward_pre_hook(
            lambda m, args, kwargs: trace.__setitem__(
                "block.positions", kwargs["position_ids"][0, -size:]), with_kwargs=True))
    select, make_mod, mods = core.select_anchors, core.create_anchor_block_mask_mod, []

    def watched(**kwargs):
        result = make_mod(**kwargs)
        mods.append((kwargs.get("sliding_window"), result[0]))
        return result

    device = ids.device
    core.select_anchors = lambda *_: (torch.tensor([anchor], device=device),
                                      torch.tensor([True], device=device))
    core.create_anchor_block_mask_mod = watched
    try:
        with torch.no_grad():
            hidden, logits, targets, mask, _ = model._backbone_forward(**batch, max_anchors=1)
    finally:
        core.select_anchors, core.create_anchor_block_mask_mod = select, make_mod
        for hook in hooks:
            hook.remove()
    sliding = set(model.sliding_window_indices)
    for number in range(len(model.layers)):
        for window, mod in mods:
            if (window is not None) == (number in sliding):
                trace[f"visible.{number}"] = visible(mod, rows, size, begin, device)
    labels = targets[0].argmax(-1)
    if model.d2t is not None:
        labels = labels + model.d2t.to(labels.device)[labels]
    trace |= {"taps": batch["hidden_states"][0, begin:anchor], "hidden": hidden[0],
              "logits": logits[0], "labels": labels, "weights": mask[0].float(),
              "ids": ids[begin:end], "anchor": torch.tensor([anchor - begin])}
    dtype = {torch.float32: "f32"}.get(hidden.dtype, "bf16")
    save_file({k: v.detach().cpu().contiguous() for k, v in trace.items()}, path,
              {"format_name": "dflash-trace", "version": "1", "program": "speculators",
               "dtype": dtype})
