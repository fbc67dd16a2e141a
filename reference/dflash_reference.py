"""docs/MODEL.md executed: the DFlash drafter, its losses and its optimizers in plain PyTorch.

Slow and short on purpose: one dense mask, no cache, no kernels. Development only; the program does
not need Python. `tests/golden/make_draft.py` writes with it the numbers that the C++ tests check.

Shapes: T tokens of a packed row, N blocks, K slots of a block, D hidden size, F = taps * D_target,
H query heads, G key-value heads, E head dimension, V vocabulary.
"""

from dataclasses import dataclass, field

import torch


@dataclass
class Layer:
    window: int = 0           # 0: full attention
    bound: str = "query"      # "query": >= a + k - (W - 1); "anchor": >= a - W
    causal: bool = False      # inside the block


@dataclass
class Spec:
    layers: list = field(default_factory=lambda: [Layer(), Layer()])
    hidden: int = 24
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    mlp: int = 40
    num_taps: int = 2
    target_hidden: int = 20
    eps: float = 1e-5
    theta: float = 10000.0
    vocab: int = 50
    block_size: int = 4
    mask_id: int = 49
    slot_shift: int = 0       # 1: anchor-first, slot k predicts position a + k + 1
    draft_ids: list = None    # reduced draft vocabulary; None = all


# --- the block: ids, positions, visibility, labels (docs/MODEL.md 2, 3, 4) ---

@dataclass
class Row:
    """Documents one after the other; doc is -1 on padding."""
    ids: torch.Tensor         # [T]
    doc: torch.Tensor         # [T]
    loss_mask: torch.Tensor   # [T]

    def positions(self):
        begin = [int((self.doc == d).nonzero()[0]) for d in self.doc]
        return torch.tensor([t - begin[t] for t in range(len(self.ids))])


def block_ids(spec, row, anchors):
    ids = torch.full((len(anchors), spec.block_size), spec.mask_id)
    ids[:, 0] = row.ids[anchors]
    return ids


def block_positions(spec, row, anchors):
    return row.positions()[anchors][:, None] + torch.arange(spec.block_size)


def visibility(spec, layer, row, anchors):
    """[N*K, T + N*K], True = may attend."""
    K, T, N = spec.block_size, len(row.ids), len(anchors)
    mask = torch.zeros(N * K, T + N * K, dtype=torch.bool)
    for n, a in enumerate(anchors.tolist()):
        for k in range(K):
            lowest = 0
            if layer.window:
                lowest = a + k - (layer.window - 1) if layer.bound == "query" else a - layer.window
            for t in range(T):
                mask[n * K + k, t] = lowest <= t < a and row.doc[t] == row.doc[a]
            for j in range(K):
                near = not layer.window or layer.bound == "anchor" or abs(j - k) < layer.window
                mask[n * K + k, T + n * K + j] = near and (j <= k or not layer.causal)
    return mask


def labels_and_weights(spec, row, anchors, gamma=4.0):
    """Rows of labels (-1: none) and loss weights with slot decay, both [N, K]."""
    N, K, T = len(anchors), spec.block_size, len(row.ids)
    label_row = torch.full((N, K), -1)
    weight = torch.zeros(N, K, dtype=torch.float64)
    first = 1 - spec.slot_shift
    for n, a in enumerate(anchors.tolist()):
        for k in range(first, K):
            at = a + k + spec.slot_shift
            if at >= T or row.doc[at] != row.doc[a]:
                continue
            label_row[n, k] = at
            decay = torch.exp(torch.tensor(-(k - first) / gamma, dtype=torch.float64))
            weight[n, k] = decay if row.loss_mask[at] else 0.0
    return label_row, weight


# --- the drafter (docs/MODEL.md 2) ---

def rms(x, w, eps):
    return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rope(x, positions, theta):
    """x [rows, heads, E]; pairs (f, f + E/2)."""
    half = x.shape[-1] // 2
    inv = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = positions.to(torch.float64)[:, None, None] * inv
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def random_weights(spec, generator):
    d, e = spec.hidden, spec.head_dim
    q, kv = spec.heads * e, spec.kv_heads * e
    shapes = {"fc.weight": (d, spec.num_taps * spec.target_hidden), "hidden_norm.weight": (d,),
              "norm.weight": (d,)}
    for i in range(len(spec.layers)):
        p = f"layers.{i}."
        shapes |= {p + "input_layernorm.weight": (d,), p + "post_attention_layernorm.weight": (d,),
                   p + "self_attn.q_proj.weight": (q, d), p + "self_attn.k_proj.weight": (kv, d),
                   p + "self_attn.v_proj.weight": (kv, d), p + "self_attn.o_proj.weight": (d, q),
                   p + "self_attn.q_norm.weight": (e,), p + "self_attn.k_norm.weight": (e,),
                   p + "mlp.gate_proj.weight": (spec.mlp, d),
                   p + "mlp.up_proj.weight": (spec.mlp, d),
                   p + "mlp.down_proj.weight": (d, spec.mlp)}
    weights = {}
    for name, shape in shapes.items():
        value = torch.randn(shape, generator=generator)
        weights[name] = value / shape[1] ** 0.5 if len(shape) == 2 else 1 + 0.1 * value
    return weights


def forward(spec, weights, row, anchors, taps, table):
    """taps [T, F], table [V, D] -> hidden rows after the drafter's own norm, [N, K, D]."""
    w = weights
    N, K = len(anchors), spec.block_size
    r = spec.heads // spec.kv_heads
    pos_context, pos_block = row.positions(), block_positions(spec, row, anchors).reshape(-1)
    c = rms(taps @ w["fc.weight"].T, w["hidden_norm.weight"], spec.eps)
    h = table[block_ids(spec, row, anchors).reshape(-1)]
    for i, layer in enumerate(spec.layers):
        p = f"layers.{i}."

        def heads(x, name):
            return (x @ w[p + f"self_attn.{name}_proj.weight"].T).view(len(x), -1, spec.head_dim)

        x = rms(h, w[p + "input_layernorm.weight"], spec.eps)
        q = rms(heads(x, "q"), w[p + "self_attn.q_norm.weight"], spec.eps)
        q = rope(q, pos_block, spec.theta)
        both, pos = torch.cat([c, x]), torch.cat([pos_context, pos_block])
        k = rope(rms(heads(both, "k"), w[p + "self_attn.k_norm.weight"], spec.eps), pos, spec.theta)
        v = heads(both, "v")
        k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
        scores = torch.einsum("qhe,khe->hqk", q, k) * spec.head_dim ** -0.5
        scores = scores.masked_fill(~visibility(spec, layer, row, anchors), float("-inf"))
        mixed = torch.einsum("hqk,khe->qhe", scores.softmax(-1), v).reshape(N * K, -1)
        h = h + mixed @ w[p + "self_attn.o_proj.weight"].T
        y = rms(h, w[p + "post_attention_layernorm.weight"], spec.eps)
        gate, up = y @ w[p + "mlp.gate_proj.weight"].T, y @ w[p + "mlp.up_proj.weight"].T
        h = h + (torch.nn.functional.silu(gate) * up) @ w[p + "mlp.down_proj.weight"].T
    return rms(h, w["norm.weight"], spec.eps).view(N, K, -1)


# --- losses (docs/MODEL.md 4) ---

def head_rows(spec, head):
    return head if spec.draft_ids is None else head[spec.draft_ids]


def draft_labels(spec, row, label_row, weight):
    """Labels as draft ids; a label outside the draft vocabulary has weight 0."""
    target = row.ids[label_row.clamp(min=0)]
    if spec.draft_ids is None:
        return target, weight
    to_draft = torch.full((spec.vocab,), -1)
    to_draft[spec.draft_ids] = torch.arange(len(spec.draft_ids))
    label = to_draft[target]
    return label.clamp(min=0), weight * (label >= 0)


def cross_entropy(logits, labels):
    return -logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]


def kl(logits, teacher_logits):
    p = teacher_logits.log_softmax(-1)
    return (p.exp() * (p - logits.log_softmax(-1))).sum(-1)


def dpace_weights(label_prob, trained, alpha=0.5):
    """[N, K]; no gradient."""
    s = torch.where(trained > 0, (1 - alpha) * label_prob + alpha, torch.ones_like(label_prob))
    survival = s.cumprod(-1) * (trained > 0)
    return (survival.flip(-1).cumsum(-1).flip(-1) * (trained > 0)).detach()


def weighted_mean(values, weight):
    return (values * weight).sum() / weight.sum()


# --- optimizers (docs/MODEL.md 4) ---

def adamw_step(p, grad, state, lr, beta1=0.9, beta2=0.95, eps=1e-8):
    state["step"] = state.get("step", 0) + 1
    m = state["m"] = beta1 * state.get("m", torch.zeros_like(p)) + (1 - beta1) * grad
    v = state["v"] = beta2 * state.get("v", torch.zeros_like(p)) + (1 - beta2) * grad ** 2
    m_hat, v_hat = m / (1 - beta1 ** state["step"]), v / (1 - beta2 ** state["step"])
    return p - lr * m_hat / (v_hat.sqrt() + eps)


def newton_schulz(matrix, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    x = x.T if matrix.shape[0] > matrix.shape[1] else x
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def muon_step(p, grad, state, lr, momentum=0.95):
    buffer = state["m"] = momentum * state.get("m", torch.zeros_like(p)) + (1 - momentum) * grad
    direction = (1 - momentum) * grad + momentum * buffer
    scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
    return p - lr * scale * newton_schulz(direction)


def train_curve(loss_of, weights, steps, kind, lr, muon_lr=0.02, clip=1.0):
    """Losses before each of `steps` full-batch updates; matrices by Muon when kind is "muon"."""
    weights = {k: v.clone() for k, v in weights.items()}
    states, losses = {k: {} for k in weights}, []
    for _ in range(steps):
        leaves = {k: v.clone().requires_grad_(True) for k, v in weights.items()}
        loss = loss_of(leaves)
        loss.backward()
        losses.append(loss.item())
        norm = torch.sqrt(sum((v.grad ** 2).sum() for v in leaves.values()))
        factor = min(1.0, clip / float(norm))
        for name, leaf in leaves.items():
            grad = leaf.grad * factor
            if kind == "muon" and leaf.dim() == 2:
                weights[name] = muon_step(weights[name], grad, states[name], muon_lr)
            else:
                weights[name] = adamw_step(weights[name], grad, states[name], lr)
    return losses
