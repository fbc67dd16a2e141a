#!/usr/bin/env python3
"""Ten optimizer steps of a tiny drafter in f64, written from the formulas of docs/MODEL.md: dense
masks, whole logits, autograd. Writes tests/golden/train/curve.safetensors (development only)."""
import math
import pathlib

import torch
from safetensors.torch import save_file

torch.manual_seed(5)
D, HEADS, KV, E, INNER, LAYERS, TAPS, VOCAB, BLOCK, MASK = 16, 2, 1, 8, 24, 2, 2, 40, 4, 39
EPS, THETA, GAMMA = 1e-5, 10000.0, 4.0
LENGTHS = [9, 12, 7]
STEPS, WARMUP = 10, 1  # 4 % of ten steps, at least one


def make_weights():
    shapes = {"fc.weight": (D, TAPS * D), "hidden_norm.weight": (D,), "norm.weight": (D,)}
    for l in range(LAYERS):
        p = f"layers.{l}."
        shapes |= {
            p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,),
            p + "self_attn.q_proj.weight": (HEADS * E, D),
            p + "self_attn.k_proj.weight": (KV * E, D), p + "self_attn.v_proj.weight": (KV * E, D),
            p + "self_attn.o_proj.weight": (D, HEADS * E),
            p + "self_attn.q_norm.weight": (E,), p + "self_attn.k_norm.weight": (E,),
            p + "mlp.gate_proj.weight": (INNER, D), p + "mlp.up_proj.weight": (INNER, D),
            p + "mlp.down_proj.weight": (D, INNER)}
    return {n: torch.randn(s) / math.sqrt(s[1]) if len(s) == 2 else 1 + 0.1 * torch.randn(s)
            for n, s in shapes.items()}


def rms(x, w):
    return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


def rope(x, pos):
    half = E // 2
    angle = pos[:, None, None] * THETA ** (-2.0 * torch.arange(half, dtype=torch.float64) / E)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def forward(w, data, anchors):
    """Hidden rows [blocks * BLOCK, D]; anchors are (document, position) pairs."""
    first = torch.tensor([data["offsets"][d] for d, _ in anchors])
    a_pos = torch.tensor([p for _, p in anchors])
    n = len(anchors)
    pos = (a_pos[:, None] + torch.arange(BLOCK)).reshape(-1).double()
    ids = torch.full((n, BLOCK), MASK)
    ids[:, 0] = data["ids"][first + a_pos]
    ctx_doc = torch.cat([torch.full((length,), d) for d, length in enumerate(LENGTHS)])
    ctx_pos = torch.cat([torch.arange(length) for length in LENGTHS])
    row_block = torch.arange(n).repeat_interleave(BLOCK)
    doc = torch.tensor([d for d, _ in anchors])
    same_doc = ctx_doc[None] == doc[row_block][:, None]
    sees_ctx = same_doc & (ctx_pos[None] < a_pos[row_block][:, None])
    sees = torch.cat([sees_ctx, row_block[:, None] == row_block[None]], 1)
    c = rms(data["taps"].double() @ w["fc.weight"].T, w["hidden_norm.weight"])
    h = data["table"].double()[ids.reshape(-1)]
    for l in range(LAYERS):
        p = f"layers.{l}."
        g = lambda name: w[p + name + ".weight"]
        x = rms(h, g("input_layernorm"))
        both = torch.cat([c, x])
        q = rope(rms((x @ g("self_attn.q_proj").T).view(-1, HEADS, E), g("self_attn.q_norm")), pos)
        k = rope(rms((both @ g("self_attn.k_proj").T).view(-1, KV, E), g("self_attn.k_norm")),
                 torch.cat([ctx_pos.double(), pos]))
        v = (both @ g("self_attn.v_proj").T).view(-1, KV, E)
        k, v = k.repeat_interleave(HEADS // KV, 1), v.repeat_interleave(HEADS // KV, 1)
        scores = torch.einsum("qhe,khe->hqk", q, k) / math.sqrt(E)
        weights = scores.masked_fill(~sees, -math.inf).softmax(-1)
        out = torch.einsum("hqk,khe->qhe", weights, v).reshape(-1, HEADS * E)
        h = h + out @ g("self_attn.o_proj").T
        x = rms(h, g("post_attention_layernorm"))
        gate, up = x @ g("mlp.gate_proj").T, x @ g("mlp.up_proj").T
        h = h + (torch.nn.functional.silu(gate) * up) @ g("mlp.down_proj").T
    return rms(h, w["norm.weight"])


def loss_of(w, data, anchors):
    log_q = (forward(w, data, anchors) @ data["head"].double().T).log_softmax(-1)
    total, weight_sum = 0.0, 0.0
    for n, (d, a) in enumerate(anchors):
        for k in range(1, BLOCK):
            at = data["offsets"][d] + a + k
            if a + k >= LENGTHS[d] or not data["loss_mask"][at]:
                continue
            weight = math.exp(-(k - 1) / GAMMA)
            total = total - weight * log_q[n * BLOCK + k, data["argmax"][at - 1]]
            weight_sum += weight
    return total / weight_sum


def newton_schulz(g):
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        m = x @ x.T
        x = 3.4445 * x + (-4.7750 * m + 2.0315 * m @ m) @ x
    return x.T if tall else x


def train(start, data, anchors, muon):
    w = {n: t.double().requires_grad_(True) for n, t in start.items()}
    first = {n: torch.zeros_like(t) for n, t in w.items()}
    second = {n: torch.zeros_like(t) for n, t in w.items()}
    losses, norms = [], []
    for step in range(STEPS):
        t = step - WARMUP
        cosine = 0.5 * (1 + math.cos(math.pi * t / (STEPS - WARMUP)))
        rate = (step + 1) / WARMUP if t < 0 else cosine
        loss = loss_of(w, data, anchors)
        grads = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
        norm = math.sqrt(sum(g.pow(2).sum().item() for g in grads.values()))
        losses.append(loss.item())
        norms.append(norm)
        with torch.no_grad():
            for n, p in w.items():
                g = grads[n] * min(1.0, 1.0 / norm)
                if muon and p.dim() == 2:
                    first[n].mul_(0.95).add_(0.05 * g)
                    p -= rate * 0.02 * math.sqrt(max(1, p.shape[0] / p.shape[1])) * newton_schulz(
                        0.05 * g + 0.95 * first[n])
                else:
                    first[n].mul_(0.9).add_(0.1 * g)
                    second[n].mul_(0.95).add_(0.05 * g * g)
                    p -= rate * 3e-3 * (first[n] / (1 - 0.9 ** (step + 1))) / (
                        (second[n] / (1 - 0.95 ** (step + 1))).sqrt() + 1e-8)
    return losses, norms, w


def main():
    tokens = sum(LENGTHS)
    offsets = [sum(LENGTHS[:d]) for d in range(len(LENGTHS) + 1)]
    answer = [int(p >= 2) for n in LENGTHS for p in range(n)]
    data = {"ids": torch.randint(0, VOCAB - 1, (tokens,)),
            "argmax": torch.randint(0, VOCAB - 1, (tokens,)),
            "loss_mask": torch.tensor(answer, dtype=torch.uint8),
            "taps": torch.randn(tokens, TAPS * D), "table": torch.randn(VOCAB, D),
            "head": torch.randn(VOCAB, D), "offsets": offsets}
    mask = data["loss_mask"]
    anchors = [(d, p) for d, n in enumerate(LENGTHS) for p in range(n - 1)
               if mask[offsets[d] + p] and mask[offsets[d] + p + 1]]
    start = make_weights()
    out = {"start." + n: t for n, t in start.items()}
    out |= {n: t for n, t in data.items() if n != "offsets"}
    out["offsets"] = torch.tensor(offsets)
    for name, muon in (("muon", True), ("adamw", False)):
        losses, norms, end = train(start, data, anchors, muon)
        print(name, [round(x, 4) for x in losses])
        out[name + ".loss"] = torch.tensor(losses, dtype=torch.float64)
        out[name + ".grad_norm"] = torch.tensor(norms, dtype=torch.float64)
        out |= {f"{name}.end.{n}": t.detach().float().contiguous() for n, t in end.items()}
    path = pathlib.Path(__file__).parent / "train" / "curve.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_file(out, path)


if __name__ == "__main__":
    main()
