"""Writes tests/golden/formats/: tiny drafters in the forms of other programs, written by their own
save code, with what these programs compute from them (f32).

  python tests/golden/make_formats.py speculators   vllm-project/speculators: folders, logits, loss
  python tests/golden/make_formats.py deepspec      DeepSpec's layout, rows by z-lab's class
  python tests/golden/make_formats.py llama         llama.cpp's converter, logits by its library
                                                    (LLAMA_CPP: its source; llama-cpp-python)
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
OUT = HERE / "formats"
sys.path += [str(HERE), str(HERE.parent / "peers")]
from make_draft import QWEN3, allow_missing_imports, fill, make_row, normal  # noqa: E402

ANCHORS = torch.tensor([0, 4, 9, 15, 17, 19])  # every block ends inside its document
DRAFT_IDS = [0, 2, 3, 5, 8, 11, 13, 17, 19, 21, 23, 29, 31, 34, 37, 40, 41, 43, 47, 49]


def speculators_inputs():
    row = make_row()
    return row, {"taps": normal((len(row.ids), 48), 41), "last": normal((len(row.ids), 24), 42),
                 "table": normal((50, 24), 43), "head": normal((50, 24), 44), "ids": row.ids,
                 "doc": row.doc, "loss_mask": row.loss_mask, "anchors": ANCHORS}


def speculators_numbers(model, row, data):
    """Logits of all blocks and the loss, by speculators; `model` has its verifier's weights."""
    import speculators.models.dflash.core as core
    from speculators.losses import resolve_loss_config

    core.select_anchors = lambda *_: (ANCHORS, torch.ones(len(ANCHORS), dtype=torch.bool))
    common = dict(hidden_states=data["taps"][None], input_ids=row.ids[None],
                  loss_mask=row.loss_mask[None], verifier_last_hidden_states=data["last"][None],
                  document_ids=row.doc[None], position_ids=row.positions()[None])
    with torch.no_grad():
        _, logits, _, _, _ = model._backbone_forward(**common, max_anchors=len(ANCHORS))
        _, loss, _ = model(**common, max_anchors=len(ANCHORS), gamma=4.0,
                           loss_config=resolve_loss_config("ce", "eager"))
    return logits[0].contiguous(), loss.reshape(1)


def borrow_tables(model, data):
    with torch.no_grad():
        model.embed_tokens.weight.copy_(data["table"])
        rows = data["head"] if model.t2d is None else data["head"][model.t2d]
        model.verifier_lm_head.weight.copy_(rows)
        model.verifier_norm.weight.fill_(1.0)
        if model.t2d is None:
            model.lm_head.weight.copy_(rows)


def write_speculators():
    allow_missing_imports()
    import speculators.models.dflash.core as core
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.models.dflash import DFlashSpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import Qwen3Config

    row, data = speculators_inputs()
    for name, size in {"speculators_full": 50, "speculators_reduced": len(DRAFT_IDS)}.items():
        layers = Qwen3Config(**QWEN3, layer_types=["sliding_attention", "full_attention"],
                             use_sliding_window=True, sliding_window=2)
        layers._attn_implementation = "eager"
        config = DFlashSpeculatorConfig(
            transformer_layer_config=layers, draft_vocab_size=size, block_size=4,
            aux_hidden_state_layer_ids=[2, 4], mask_token_id=49,
            sliding_window_non_causal=size != 50,
            speculators_config=SpeculatorsConfig(
                algorithm="dflash", default_proposal_method="greedy",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
                verifier=VerifierConfig(name_or_path=None, architectures=["Qwen3ForCausalLM"])))
        model = core.DFlashDraftModel(config).float()
        fill(model)
        if size != 50:
            t2d = torch.zeros(50, dtype=torch.bool)
            t2d[DRAFT_IDS] = True
            model.load_vocab_mappings(t2d, torch.tensor(DRAFT_IDS) - torch.arange(size))
            with torch.no_grad():  # an own head: not the verifier's rows
                model.lm_head.weight.copy_(normal((size, 24), 45))
        borrow_tables(model, data)
        model.save_pretrained(OUT / name)
        (OUT / name / "config.py").unlink(missing_ok=True)  # a copy of their source
        logits, loss = speculators_numbers(model, row, data)
        save_file(data | {"logits": logits, "loss": loss}, OUT / name / "expected.safetensors")


def zlab_rows(config, weights, taps, embed, starts):
    """Hidden rows of a block a start, by z-lab's class without a cache."""
    from dflash.model import DFlashDraftModel

    config._attn_implementation = "eager"
    model = DFlashDraftModel(config).float().eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        return torch.stack([
            model(position_ids=torch.arange(start + 4)[None], noise_embedding=embed[i][None],
                  target_hidden=taps[None, :start])[0] for i, start in enumerate(starts)])


def write_deepspec():
    from dflash.model import DFlashDraftModel
    from transformers import Qwen3Config

    config = Qwen3Config(**QWEN3, num_target_layers=5, block_size=4,
                         dflash_config={"target_layer_ids": [1, 3], "mask_token_id": 49})
    model = DFlashDraftModel(config).float()
    _, weights = fill(model)
    taps, table, head = normal((12, 48), 51), normal((50, 24), 52), normal((50, 24), 53)
    ids = torch.tensor([[7, 49, 49, 49], [3, 49, 49, 49]])
    starts = [7, 10]
    rows = zlab_rows(config, weights, taps, table[ids], starts)
    folder = OUT / "deepspec"
    folder.mkdir(exist_ok=True)
    save_file(weights | {"embed_tokens.weight": table, "lm_head.weight": head},
              folder / "model.safetensors", {"format": "pt"})
    flat = {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "hidden_act": "silu",
            "num_target_layers": 5, "target_layer_ids": [1, 3], "mask_token_id": 49,
            "block_size": 4, "num_anchors": 512, "markov_rank": 0, "markov_head_type": "vanilla",
            "enable_confidence_head": False, "confidence_head_with_markov": False,
            "layer_types": ["full_attention"] * 2, "use_sliding_window": False,
            "sliding_window": None, "torch_dtype": "float32"} | QWEN3
    (folder / "config.json").write_text(json.dumps(flat, indent=1) + "\n")
    save_file({"taps": taps, "anchor_tokens": ids[:, 0].contiguous(),
               "anchors": torch.tensor(starts), "logits": rows @ head.T},
              folder / "expected.safetensors")


SMALL = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, intermediate_size=48, vocab_size=576, rms_norm_eps=1e-5,
             rope_theta=10000.0, max_position_embeddings=512, attention_bias=False)


def mini_target(folder):
    """config.json and tokenizer of a tiny Llama, as llama.cpp's converter wants them."""
    shutil.copy(HERE / "text/mini_smollm/tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 5}
        | {k: v for k, v in SMALL.items() if k != "num_hidden_layers"}))


def convert(model_dir, target_dir, out):
    """llama.cpp's own converter; the mini tokenizer's splitting rule is told, not guessed."""
    source = pathlib.Path(os.environ["LLAMA_CPP"])
    sys.path[:0] = [str(source / "gguf-py"), str(source)]
    import gguf
    from conversion import get_model_class
    from conversion.base import TextModel

    def no_sentencepiece(*_):
        raise FileNotFoundError  # its own sign for "try byte-level BPE"

    TextModel.get_vocab_base_pre = lambda *_: "smollm"
    TextModel._set_vocab_sentencepiece = no_sentencepiece
    cls = get_model_class("DFlashDraftModel")
    kwargs = {"target_model_dir": target_dir} if target_dir else {}
    cls(model_dir, gguf.LlamaFileType.ALL_F32, out, **kwargs).write()


def write_llama():
    from dflash.model import DFlashDraftModel
    from transformers import Qwen3Config

    import llama_dflash

    config = Qwen3Config(**SMALL, num_target_layers=5, block_size=4, is_causal=False,
                         layer_types=["sliding_attention", "full_attention"],
                         use_sliding_window=True, sliding_window=5,
                         dflash_config={"target_layer_ids": [1, 3], "mask_token_id": 570})
    model = DFlashDraftModel(config).float()
    with torch.no_grad():
        for i, (_, p) in enumerate(sorted(model.named_parameters())):
            p.copy_(normal(p.shape, 100 + i) * (0.1 if p.dim() == 1 else p.shape[-1] ** -0.5))
            if p.dim() == 1:
                p.add_(1.0)
    taps = normal((12, 64), 62)
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        (temporary / "target").mkdir()
        mini_target(temporary / "target")
        model.save_pretrained(temporary / "drafter")
        weights = load_file(temporary / "drafter/model.safetensors")
        weights |= {"embed_tokens.weight": normal((576, 32), 63),
                    "lm_head.weight": normal((576, 32), 64)}
        save_file(weights, temporary / "drafter/model.safetensors", {"format": "pt"})
        convert(temporary / "drafter", temporary / "target", OUT / "llama_cpp.gguf")
    drafter = llama_dflash.Drafter(OUT / "llama_cpp.gguf", context=64)
    logits, seen = [], 0
    for token, start in [(7, 7), (3, 10)]:
        drafter.inject(seen, taps[seen:start].numpy())
        logits.append(torch.from_numpy(drafter.block(token, start)))
        seen = start
    save_file({"taps": taps, "anchor_tokens": torch.tensor([7, 3]),
               "anchors": torch.tensor([7, 10]), "logits": torch.stack(logits)},
              OUT / "llama_cpp.expected.safetensors")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for part in sys.argv[1:]:
        globals()["write_" + part]()
    for path in OUT.rglob("*.safetensors"):
        path.chmod(0o644)
