#!/usr/bin/env python3
"""Cuts tests/data/quants/ out of the full reference set of block formats.

    python tools/make_test_data_quants.py --reference "$SLUICE_REFERENCE/quants" --out tests/data/quants

Keeps a few blocks, rows and columns of every tensor, so that a clone without the full set still tests every format.
Needs numpy and safetensors.
"""
import argparse
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file

ROWS = ("dot_weights", "dot_y", "dot_abs", "int_dots", "int_sub_dots", "int_min_dots", "int_result")
COLUMNS = 64  # weights kept of every row for the quantizers: two blocks of 32


def spread(n, keep):
    """`keep` row numbers spread evenly over n rows."""
    return np.unique(np.linspace(0, n - 1, min(n, keep)).astype(int))


def cut(format_name, tensors):
    weights = tensors["values"].shape[1]
    out = {}
    blocks = spread(len(tensors["blocks"]), {1: 512, 32: 20, 64: 12, 256: 5}[weights])
    if format_name == "MXFP4":  # subnormal and overflowing scales too
        blocks = np.union1d(blocks, np.flatnonzero(np.isin(tensors["blocks"][:, 0], (0, 1, 2, 253, 254))))
    special = spread(len(tensors["special_blocks"]), 2 if weights == 256 else 8)
    for name, t in tensors.items():
        if name in ("blocks", "values"):
            t = t[blocks]
        elif name in ("special_blocks", "special_values"):
            t = t[special]
        elif name in ROWS:
            t = t[:2]
        elif name.startswith("quant_"):
            row_bytes = tensors["quant_bytes"].shape[1] * COLUMNS // tensors["quant_input"].shape[1]
            # rows of 256-weight formats can't be cut; Sluice doesn't write those that have reference bytes
            if weights == 256 or name == "quant_values":
                continue
            t = t[:, :row_bytes if name == "quant_bytes" else COLUMNS]
        elif name.startswith("edge_"):
            t = t[spread(len(t), 400)]
        out[name] = np.ascontiguousarray(t)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(args.reference.glob("*.safetensors")):
        save_file(cut(path.stem, load_file(path)), args.out / path.name)
        (args.out / path.name).chmod(0o644)


if __name__ == "__main__":
    main()
