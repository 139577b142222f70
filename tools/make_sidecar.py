#!/usr/bin/env python3
"""Write the experts of a GGUF file as a flash-MoE sidecar (a directory with manifest.json and a file per layer), and the
model without them.

Standard library only. Bytes are moved, nothing is decoded, and the same model gives the same bytes. The manifest has
the fields that flashmoe_sidecar.py writes (schema version 1), but for the time, and paths without folders.

Layouts
  whole    layer_major_whole_tensor: the tensors of a layer one after another, as they lie in the GGUF file
  expert   layer_major_expert: the parts of an expert side by side, expert after expert, so that one read brings it

Examples
  make_sidecar.py model.gguf sidecar
  make_sidecar.py --layout expert --dense dense.gguf model.gguf sidecar
"""

import argparse
import json
import math
import mmap
import os
import pathlib
import struct
import sys

FAMILIES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps")

# GGUF type id: (name, weights in a block, bytes in a block)
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}
# Metadata type id: struct's letter. 8 is text, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Tensor:
    """A tensor as the GGUF file has it; `offset` counts from the start of the file."""

    def __init__(self, name, extents, type_id):
        if type_id not in TYPES:
            sys.exit(f"{name}: type {type_id} is unknown")
        self.name, self.extents, self.type_id = name, extents, type_id
        self.type, self.block, block_bytes = TYPES[type_id]
        self.bytes = math.prod(extents) // self.block * block_bytes
        self.offset = 0
        parts = name.split(".")
        expert = len(parts) == 4 and parts[0] == "blk" and parts[2] in FAMILIES and parts[3] == "weight"
        self.layer, self.family = (int(parts[1]), parts[2]) if expert else (None, None)


class Model:
    """Metadata, as bytes and as values, and tensors of a GGUF file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.at = 0
        if bytes(self.data[:4]) != b"GGUF":
            sys.exit(f"{path}: is no GGUF file")
        self.at = 4
        self.version = self.take("I")
        if self.version not in (2, 3):
            sys.exit(f"{path}: GGUF version {self.version} is unknown")
        tensor_count, key_count = self.take("Q"), self.take("Q")
        self.records, self.metadata = {}, {}
        for _ in range(key_count):
            begin, key = self.at, self.text()
            self.metadata[key] = self.value(self.take("I"))
            self.records[key] = bytes(self.data[begin:self.at])
        if self.metadata.get("split.count", 1) > 1:
            sys.exit(f"{path}: is one part of a split model; merge its parts first")
        self.alignment = self.metadata.get("general.alignment", 32)
        self.tensors, offsets = [], []
        for _ in range(tensor_count):
            name, dimensions = self.text(), self.take("I")
            extents = [self.take("Q") for _ in range(dimensions)]
            self.tensors.append(Tensor(name, extents, self.take("I")))
            offsets.append(self.take("Q"))
        start = self.at + -self.at % self.alignment
        for tensor, offset in zip(self.tensors, offsets):
            tensor.offset = start + offset
            if tensor.offset + tensor.bytes > len(self.data):
                sys.exit(f"{path}: {tensor.name} passes the end of the file")

    def take(self, letter):
        (value,) = struct.unpack_from("<" + letter, self.data, self.at)
        self.at += struct.calcsize("<" + letter)
        return value

    def text(self):
        length = self.take("Q")
        self.at += length
        return bytes(self.data[self.at - length:self.at]).decode("utf-8")

    def value(self, type_id):
        if type_id == 8:
            return self.text()
        if type_id == 9:
            element, count = self.take("I"), self.take("Q")
            return [self.value(element) for _ in range(count)]
        return self.take(SCALARS[type_id])

    def bytes_of(self, tensor, begin=0, end=None):
        return self.data[tensor.offset + begin:tensor.offset + (tensor.bytes if end is None else end)]

    def of_architecture(self, key):
        return self.metadata.get(f"{self.metadata['general.architecture']}.{key}")


def entry(tensor, source, offset):
    return {
        "layer": tensor.layer, "tensor_family": tensor.family, "tensor_name": tensor.name,
        "original_gguf_tensor_name": tensor.name, "expert_id": None, "quant_type": tensor.type,
        "block_size": tensor.block, "exact_byte_length": tensor.bytes, "source_shard": source, "source_shard_index": 0,
        "source_offset": tensor.offset, "shape": tensor.extents, "bytes_per_expert": tensor.bytes // tensor.extents[2],
        "quant_tier": None, "projection_quant_kind": None, "alternate_bank_offsets": None,
        "dynamic_quant_policy_tag": None, "repacked_file": f"layer_{tensor.layer:03d}.bin", "repacked_offset": offset,
    }


def write_layer(model, tensors, source, by_expert, path):
    """Writes one layer's file; returns its entries."""
    experts = tensors[0].extents[2]
    sizes = [tensor.bytes // experts for tensor in tensors]
    entries, offset = [], 0
    for tensor, size in zip(tensors, sizes):
        entries.append(entry(tensor, source, offset))
        if by_expert:
            entries[-1] |= {"expert_stride": sum(sizes), "expert_major": True, "expert_count": experts}
        offset += size if by_expert else tensor.bytes
    with open(path, "wb") as file:
        if by_expert:
            for e in range(experts):
                for tensor, size in zip(tensors, sizes):
                    file.write(model.bytes_of(tensor, e * size, (e + 1) * size))
        else:
            for tensor in tensors:
                file.write(model.bytes_of(tensor))
    return entries


def write_sidecar(model, source, by_expert, out):
    layers = {}
    for tensor in model.tensors:
        if tensor.family:
            layers.setdefault(tensor.layer, []).append(tensor)
    if not layers:
        sys.exit(f"{source}: has no experts")
    out.mkdir(parents=True, exist_ok=True)
    entries = []
    for layer, tensors in sorted(layers.items()):
        tensors.sort(key=lambda tensor: FAMILIES.index(tensor.family))
        entries += write_layer(model, tensors, source, by_expert, out / f"layer_{layer:03d}.bin")
    manifest = {
        "schema_version": 1, "sidecar_kind": "flashmoe_gguf",
        "layout": "layer_major_expert" if by_expert else "layer_major_whole_tensor", "include_shared": False,
        "filters": {"layers": None, "families": None}, "source": {"model_files": [source]},
        "model": {
            "arch": model.metadata["general.architecture"], "expert_count": model.of_architecture("expert_count"),
            "expert_used_count": model.of_architecture("expert_used_count"),
            "leading_dense_block_count": model.of_architecture("leading_dense_block_count"),
            "sidecar_layout": "expert-major" if by_expert else "layer-major",
        },
        "entries": entries,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def write_dense(model, path):
    """The model without its stacked experts: all metadata but what speaks of parts of a split, all other tensors."""
    records = [record for key, record in model.records.items() if not key.startswith("split.")]
    tensors = [tensor for tensor in model.tensors if not tensor.family]
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", model.version, len(tensors), len(records)) + b"".join(records))
        offset = 0
        for tensor in tensors:
            name = tensor.name.encode("utf-8")
            file.write(struct.pack("<Q", len(name)) + name + struct.pack("<I", len(tensor.extents)))
            file.write(struct.pack(f"<{len(tensor.extents)}QIQ", *tensor.extents, tensor.type_id, offset))
            offset += tensor.bytes + -tensor.bytes % model.alignment
        file.write(bytes(-file.tell() % model.alignment))
        for tensor in tensors:
            file.write(model.bytes_of(tensor))
            file.write(bytes(-tensor.bytes % model.alignment))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="a GGUF file with experts")
    parser.add_argument("out", type=pathlib.Path, help="the sidecar's directory; made if missing")
    parser.add_argument("--layout", choices=("whole", "expert"), default="whole")
    parser.add_argument("--dense", type=pathlib.Path, metavar="FILE", help="also write the model without experts here")
    args = parser.parse_args()
    if args.dense and args.dense.exists() and os.path.samefile(args.dense, args.model):
        sys.exit(f"{args.dense}: is the model itself; name another file")
    model = Model(args.model)
    write_sidecar(model, args.model.name, args.layout == "expert", args.out)
    if args.dense:
        write_dense(model, args.dense)


if __name__ == "__main__":
    main()
