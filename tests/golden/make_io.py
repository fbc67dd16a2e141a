"""Writes tests/golden/io/: files made by the reference packages (gguf, safetensors, numpy) and the
floats that the gguf package reads from its block formats. Run by hand:
python3 tests/golden/make_io.py
"""

from pathlib import Path

import gguf
import numpy as np
from gguf import quants
from safetensors.numpy import save_file

OUT = Path(__file__).parent / "io"
TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
COLUMNS = 256


def weights(rng, rows):
    """Rows of different scales, with zeros and both signs."""
    values = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
    values *= np.float32(10.0) ** np.arange(-2, rows - 2, dtype=np.float32)[:, None]
    values[:, ::17] = 0.0
    return values


def random_blocks(rng, kind, rows):
    """Bytes of a K format, which the package reads but does not write; scales are small halves."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, COLUMNS // block, size), dtype=np.uint8)
    scales = rng.uniform(1e-3, 1e-1, (rows, COLUMNS // block, 2)).astype(np.float16).view(np.uint8)
    if kind == gguf.GGMLQuantizationType.Q6_K:
        data[..., 208:210] = scales[..., :2]
    else:
        data[..., 0:4] = scales
    return data.reshape(rows, -1)


def write_gguf():
    rng = np.random.default_rng(7)
    writer = gguf.GGUFWriter(OUT / "types.gguf", "llama")
    writer.add_name("golden")
    writer.add_uint8("test.u8", 255)
    writer.add_int8("test.i8", -128)
    writer.add_uint16("test.u16", 65535)
    writer.add_int16("test.i16", -32768)
    writer.add_uint32("test.u32", 4294967295)
    writer.add_int32("test.i32", -2147483648)
    writer.add_uint64("test.u64", 18446744073709551615)
    writer.add_int64("test.i64", -9223372036854775808)
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", -1e300)
    writer.add_bool("test.yes", True)
    writer.add_bool("test.no", False)
    writer.add_array("test.strings", ["a", "", "zwölf", "<|im_start|>"])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.floats", [0.25, -4.0])
    expected = {}
    plain = weights(rng, 3)
    writer.add_tensor("plain", plain)
    writer.add_tensor("vector", np.arange(5, dtype=np.float32))
    writer.add_tensor("cube", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        if name.endswith("_K"):
            data = random_blocks(rng, kind, 2)
        else:
            data = quants.quantize(weights(rng, 4), kind)
        if data.dtype != np.uint8 and name == "BF16":
            data = data.view(np.uint8)
        if name == "F16":
            data = weights(rng, 4).astype(np.float16)
            data[0, :6] = [6e-8, -6e-8, 6.1e-5, 65504.0, np.inf, -0.0]
            writer.add_tensor(name, data)
            expected[name] = data.astype(np.float32)
            continue
        writer.add_tensor(name, data, raw_dtype=kind)
        expected[name] = quants.dequantize(data, kind).astype(np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected["plain"] = plain
    save_file(expected, OUT / "types_expected.safetensors")


def write_safetensors():
    rng = np.random.default_rng(8)
    tensors = {
        "f64": rng.standard_normal((2, 3)),
        "f32": rng.standard_normal((3, 4)).astype(np.float32),
        "f16": rng.standard_normal((5,)).astype(np.float16),
        "i64": np.array([-1, 2**62], dtype=np.int64),
        "i32": np.array([[-7]], dtype=np.int32),
        "i16": np.array([-300, 300], dtype=np.int16),
        "i8": np.array([-128, 127, 0], dtype=np.int8),
        "u8": np.array([0, 255], dtype=np.uint8),
        "bool": np.array([True, False, True]),
        "empty": np.zeros((0, 4), dtype=np.float32),
        "scalar": np.array(2.5, dtype=np.float32),
    }
    save_file(tensors, OUT / "plain.safetensors", metadata={"format": "pt", "note": "zwölf"})


def main():
    OUT.mkdir(exist_ok=True)
    write_gguf()
    write_safetensors()


if __name__ == "__main__":
    main()
