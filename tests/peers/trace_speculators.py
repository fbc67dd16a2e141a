"""A training run of `speculators` on what we captured, recorded in its last step, and what the
doctor says to the trace: its own loader, model, loss and autocast, from our exported drafter.

    trace_speculators.py --drafter FOLDER --dataset DATASET [--steps 10] [--program PROGRAM]

SmolLM2 as target, in f32 and, with --bf16, in its trainer's autocast. Exit 1 when the doctor finds
a difference.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
GGUF = ROOT / "assets/SmolLM2-135M-Instruct.Q4_1.gguf"
sys.path += [str(HERE), str(ROOT / "tests/golden"), str(ROOT / "tools/trace")]
from make_draft import allow_missing_imports  # noqa: E402


def hugging_face_target(folder):
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    widened = AutoModelForCausalLM.from_pretrained(str(GGUF.parent), gguf_file=GGUF.name,
                                                   dtype=torch.float32)
    del widened.config.quantization_config  # a plain model is saved
    plain = LlamaForCausalLM(widened.config)
    plain.load_state_dict(widened.state_dict())
    plain.save_pretrained(folder)
    return folder


def samples(features, dataset):
    """Documents as speculators' dataset gives them."""
    masks = {}
    for part in sorted(dataset.glob("part-*.safetensors")):
        rows = load_file(part)
        offsets = rows["offsets"].tolist()
        for begin, end in zip(offsets, offsets[1:]):
            masks[len(masks)] = rows["loss_mask"][begin:end]
    for part in sorted(features.glob("part-*.safetensors")):
        rows = load_file(part)
        offsets = rows["offsets"].tolist()
        for number, begin, end in zip(rows["documents"].tolist(), offsets, offsets[1:]):
            size = end - begin
            yield {"hidden_states": rows["taps"][begin:end],
                   "input_ids": rows["ids"][begin:end].long(),
                   "verifier_last_hidden_states": rows["last"][begin:end],
                   "loss_mask": masks[number].long(), "lengths": torch.tensor([size]),
                   "position_ids": torch.arange(size)}


def train(model, loader, steps, dtype):
    """Its trainer's loop without its device handling. Returns the last batch and all losses."""
    from speculators.losses import resolve_loss_config

    wanted = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(wanted, lr=1e-4, weight_decay=0.01)
    losses, batch = [], None
    for _ in range(steps):
        batch = next(loader)
        batch.pop("error_records", None)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            _, loss, _ = model(**batch, max_anchors=64, gamma=4.0,
                               loss_config=resolve_loss_config("ce", "eager"))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(wanted, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return batch, losses


def batches(documents, collate, count):
    while True:
        for first in range(0, len(documents) - count + 1, count):
            yield collate(documents[first:first + count])


def telling_anchor(batch):
    """In the middle of the second document's answer."""
    inside = (batch["document_ids"][0] == 1) & (batch["loss_mask"][0] > 0)
    rows = inside.nonzero().flatten()
    return int(rows[len(rows) // 2])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build/release/dflash-cpp"))
    parser.add_argument("--drafter", required=True, type=pathlib.Path)
    parser.add_argument("--dataset", required=True, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()
    allow_missing_imports()
    from record_speculators import record
    from speculators import SpeculatorModel, SpeculatorModelConfig
    from speculators.train.data import CollateFn

    dtype = torch.bfloat16 if args.bf16 else torch.float32
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)

        def program(*arguments):
            return subprocess.run([args.program, *map(str, arguments), "--target", GGUF, "--dtype",
                                   "bf16" if args.bf16 else "f32"]).returncode

        target = hugging_face_target(work / "target")
        config = json.loads((args.drafter / "config.json").read_text())
        taps = config["dflash_config"]["target_layer_ids"]
        if program("capture", "--dataset", args.dataset, "--out", work / "features", "--keep-last",
                   "--taps", ",".join(map(str, taps)), "--f32", "--quiet"):
            return 1
        subprocess.run([args.program, "export", args.drafter, "--format", "speculators", "--out",
                        work / "start", "--verifier", target], check=True)
        layers = SpeculatorModelConfig.from_pretrained(work / "start")
        layers.transformer_layer_config._attn_implementation = "sdpa"  # flex has no CPU backward
        model = SpeculatorModel.from_pretrained(work / "start", config=layers,
                                                attn_implementation="eager").float()
        model.train()
        documents = list(samples(work / "features", args.dataset))
        collate = CollateFn(1024, config["hidden_size"], len(taps), dtype=dtype)
        batch, losses = train(model, batches(documents, collate, 4), args.steps, dtype)
        print("losses", " ".join(f"{loss:.3f}" for loss in losses))
        model.save_pretrained(work / "trained")
        with torch.autocast("cpu", dtype=dtype, enabled=args.bf16):
            record(model, batch, telling_anchor(batch), work / "trace.safetensors")
        return program("doctor", "--drafter", work / "trained", "--trace",
                       work / "trace.safetensors")


if __name__ == "__main__":
    sys.exit(main())
