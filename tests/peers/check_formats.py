"""What `dflash-cpp export` writes, loaded by the programs it is for: their numbers on it equal
those that the goldens hold (tests/golden/make_formats.py). Tiny drafters, seconds.

    check_formats.py [PROGRAM]    needs speculators, dflash, transformers, llama-cpp-python

Prints one line a check; exit 1 when one fails.
"""
import contextlib
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
GOLDEN = ROOT / "tests/golden"
sys.path += [str(HERE), str(GOLDEN)]
import make_formats  # noqa: E402
from make_draft import allow_missing_imports  # noqa: E402

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/release/dflash-cpp")
failures = 0


def report(name, got, want, bound=2e-4):
    global failures
    worst = float((got - want).abs().max()) if got.shape == want.shape else float("inf")
    failures += not worst <= bound
    print(f"{'ok  ' if worst <= bound else 'FAIL'} {name}: worst difference {worst:.2e}")


def program(*arguments):
    command = [PROGRAM, *map(str, arguments), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"FAIL {' '.join(map(str, arguments))}\n{done.stderr}")


def through_import(source, folder):
    """The golden as our own form, so that what is exported is not merely copied."""
    program("import", source, "--out", folder)
    return folder


def tiny_llama(folder, sizes, **tables):
    from transformers import LlamaConfig, LlamaForCausalLM

    keep = {k: v for k, v in sizes.items() if k not in ("num_hidden_layers", "layer_types")}
    torch.manual_seed(3)
    keep |= {"num_hidden_layers": 5, "tie_word_embeddings": False}
    model = LlamaForCausalLM(LlamaConfig(**keep))
    with torch.no_grad():
        if tables:
            model.model.embed_tokens.weight.copy_(tables["table"])
            model.lm_head.weight.copy_(tables["head"])
    model.float().save_pretrained(folder)
    return folder


def check_speculators(work):
    from speculators import SpeculatorModel

    for name in ["speculators_full", "speculators_reduced"]:
        want = load_file(GOLDEN / "formats" / name / "expected.safetensors")
        target = tiny_llama(work / f"{name}_target", make_formats.QWEN3, table=want["table"],
                            head=want["head"])
        own = through_import(GOLDEN / "formats" / name, work / f"{name}_own")
        # A reduced vocabulary that is imported keeps its rule; the full one has anchor windows.
        program("export", own, "--format", "speculators", "--out", work / name, "--verifier",
                target)
        model = SpeculatorModel.from_pretrained(work / name, attn_implementation="eager").float()
        row, _ = make_formats.speculators_inputs()
        logits, loss = make_formats.speculators_numbers(model, row, want)
        report(f"{name}: logits in speculators", logits, want["logits"])
        report(f"{name}: loss in speculators", loss, want["loss"], 1e-5)


def check_zlab(work):
    from dflash.model import DFlashDraftModel

    for name in ["zlab_full", "zlab_sliding", "zlab_sliding_bidirectional"]:
        want = load_file(GOLDEN / "draft" / name / "block.safetensors")
        own = through_import(GOLDEN / "draft" / name, work / f"{name}_own")
        program("export", own, "--format", "zlab", "--out", work / name)
        model = DFlashDraftModel.from_pretrained(work / name, dtype=torch.float32,
                                                 attn_implementation="sdpa").eval()
        rows = []
        with torch.no_grad():
            for i, start in enumerate(want["anchors"].tolist()):
                rows.append(model(position_ids=torch.arange(start + 4)[None],
                                  noise_embedding=want["embed"][i][None],
                                  target_hidden=want["taps"][None, :start])[0])
        report(f"{name}: rows in z-lab's package", torch.stack(rows), want["hidden"])


def check_deepspec(work):
    """DeepSpec is no package; its layout is read by llama.cpp's converter, which takes the class's
    name for DSpark, so here its tensors run in z-lab's class, as when the golden was made."""
    from transformers import Qwen3Config

    want = load_file(GOLDEN / "formats/deepspec/expected.safetensors")
    own = through_import(GOLDEN / "formats/deepspec", work / "deepspec_own")
    program("export", own, "--format", "deepspec", "--out", work / "deepspec")
    weights = load_file(work / "deepspec/model.safetensors")
    table, head = weights.pop("embed_tokens.weight"), weights.pop("lm_head.weight")
    import json
    flat = json.loads((work / "deepspec/config.json").read_text())
    config = Qwen3Config(**{k: flat[k] for k in make_formats.QWEN3 if k in flat},
                         num_target_layers=flat["num_target_layers"],
                         block_size=flat["block_size"],
                         dflash_config={k: flat[k] for k in ("target_layer_ids", "mask_token_id")})
    ids = torch.full((2, 4), flat["mask_token_id"])
    ids[:, 0] = want["anchor_tokens"]
    rows = make_formats.zlab_rows(config, weights, want["taps"], table[ids],
                                  want["anchors"].tolist())
    report("deepspec: logits of its tensors", rows @ head.T, want["logits"])


def llama_logits(path, want):
    import llama_dflash

    drafter = llama_dflash.Drafter(path, context=64)
    logits, seen = [], 0
    for token, start in zip(want["anchor_tokens"].tolist(), want["anchors"].tolist()):
        drafter.inject(seen, want["taps"][seen:start].numpy())
        logits.append(torch.from_numpy(drafter.block(token, start)))
        seen = start
    return torch.stack(logits)


def check_llama(work):
    want = load_file(GOLDEN / "formats/llama_cpp.expected.safetensors")
    target = tiny_llama(work / "llama_target", make_formats.SMALL)
    shutil.copy(GOLDEN / "text/mini_smollm/tokenizer.json", target)
    own = through_import(GOLDEN / "formats/llama_cpp.gguf", work / "llama_own")
    for dtype, bound in [("f32", 2e-4), ("bf16", 0.2)]:
        out = work / f"llama_{dtype}.gguf"
        program("export", own, "--format", "gguf", "--out", out, "--target", target, "--dtype",
                dtype)
        report(f"gguf {dtype}: logits in llama.cpp", llama_logits(out, want), want["logits"], bound)


def main():
    allow_missing_imports()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        for check in [check_speculators, check_zlab, check_deepspec, check_llama]:
            with contextlib.redirect_stderr(io.StringIO()):
                check(pathlib.Path(work))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
