#!/usr/bin/env python3
"""Mean squared error of llama.cpp's quantizers, and of plain ones without a search, on fixed rows.

    cmake -S llama.cpp/ggml -B /tmp/ggml && cmake --build /tmp/ggml --target ggml-base
    python bench/quantizer_mse.py --ggml /tmp/ggml/src/libggml-base.so > tests/data/quants/quantizer_mse.json

Sluice's own error on the same rows is measured by sluice_quant_test, which reads that file, holds Sluice to it and
prints the comparison:

    sluice_quant_test --gtest_filter='KQuantizers.Error*'

Needs numpy. The rows are made of integer hashes and of f64 operations that IEEE 754 rounds exactly, so the test makes
the same ones. No importance matrix is used.
"""
import argparse
import ctypes
import json

import numpy as np

BLOCKS = 512  # super-blocks of 256 weights a kind
SEEDS = {"normal": 1, "heavy_tailed": 2}


def hashes(seed, n):
    """The first n outputs of the SplitMix64 generator."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def normals(seed, n):
    """Sums of twelve uniform numbers, less 6: close to normal, and exact."""
    uniform = ((hashes(seed, 12 * n) >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(n, 12)
    total = uniform[:, 0].copy()
    for k in range(1, 12):
        total += uniform[:, k]
    return total - 6.0


def weights(kind):
    """f32 weights of a kind: normal, or Student's t with four degrees of freedom; both times 0.02."""
    n = 256 * BLOCKS
    if kind == "normal":
        return (normals(SEEDS[kind], n) * 0.02).astype(np.float32)
    z = normals(SEEDS[kind], 5 * n).reshape(n, 5)
    chi = z[:, 1] * z[:, 1] + z[:, 2] * z[:, 2] + z[:, 3] * z[:, 3] + z[:, 4] * z[:, 4]
    return (z[:, 0] / np.sqrt(chi / 4.0) * 0.02).astype(np.float32)


def ratio(a, b):
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def as_f16(a):
    return a.astype(np.float16).astype(np.float32)


def plain_paired(x, max_code):
    """Q4_K and Q5_K by minimum and maximum of each sub-block: the values after quantization."""
    sub = x.reshape(-1, 8, 32)
    minimum = -np.minimum(sub.min(-1), 0)
    scale = (sub.max(-1) + minimum) / max_code
    d, dmin = as_f16(scale.max(-1, keepdims=True) / 63), as_f16(minimum.max(-1, keepdims=True) / 63)
    s = (d * np.clip(np.rint(ratio(scale, d + 0 * scale)), 0, 63))[..., None]
    m = (dmin * np.clip(np.rint(ratio(minimum, dmin + 0 * minimum)), 0, 63))[..., None]
    codes = np.clip(np.rint(ratio(sub + m, s + 0 * sub)), 0, max_code)
    return (s * codes - m).reshape(-1)


def plain_signed(x):
    """Q6_K by the value of the largest magnitude of each sub-block."""
    sub = x.reshape(-1, 16, 16)
    scale = np.take_along_axis(sub, np.abs(sub).argmax(-1)[..., None], -1)[..., 0] / -32
    d = as_f16(np.take_along_axis(scale, np.abs(scale).argmax(-1)[..., None], -1) / -128)
    s = (d * np.clip(np.rint(ratio(scale, d + 0 * scale)), -128, 127))[..., None]
    return (s * np.clip(np.rint(ratio(sub, s + 0 * sub)), -32, 31)).reshape(-1)


FORMATS = {
    "Q4_K": ("q4_K", 144, lambda x: plain_paired(x, 15)),
    "Q5_K": ("q5_K", 176, lambda x: plain_paired(x, 31)),
    "Q6_K": ("q6_K", 210, plain_signed),
}


def through_ggml(ggml, name, block_bytes, x):
    """The values after ggml's quantizer and dequantizer."""
    blocks = np.zeros(len(x) // 256 * block_bytes, dtype=np.uint8)
    out = np.empty_like(x)
    pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)
    quantize = getattr(ggml, f"quantize_{name}")
    quantize.restype = ctypes.c_size_t
    quantize(pointer(x), pointer(blocks), ctypes.c_int64(len(x) // 256), ctypes.c_int64(256), ctypes.c_void_p(None))
    getattr(ggml, f"dequantize_row_{name}")(pointer(blocks), pointer(out), ctypes.c_int64(len(x)))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ggml", required=True, help="path of libggml-base.so")
    ggml = ctypes.CDLL(parser.parse_args().ggml)
    ggml.ggml_version.restype = ctypes.c_char_p
    figures = {}
    for kind in SEEDS:
        x = weights(kind)
        error = lambda y: float(np.mean((x.astype(np.float64) - y) ** 2))
        for name, (symbol, block_bytes, plain) in FORMATS.items():
            figures.setdefault(name, {})[kind] = {
                "ggml": error(through_ggml(ggml, symbol, block_bytes, x)), "plain": error(plain(x))}
    print(json.dumps({"made_by": "bench/quantizer_mse.py", "ggml_version": ggml.ggml_version().decode(),
                      "blocks": BLOCKS, "seeds": SEEDS, "mean_squared_error": figures}, indent=1))


if __name__ == "__main__":
    main()
