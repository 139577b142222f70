"""Writes the trained network as a GGUF file in float32, with all the metadata of a converted Qwen3.5 file.

    python export.py WORK/mtp.pt OUT.gguf [--type f32|q8_0|mix]

`f32` is the source for `sluice quantize`, which makes the committed file (README.md has the command). `q8_0` and `mix` use
the formats that gguf-py itself can write; `mix` stands in for the K formats with 32-weight ones of like size.

The network already has the file's names and conventions, so a parameter is written as it is, but for two: the logarithm of
the decay rate becomes ssm_a = -exp(a), and matrices of gate and up rows become two tensors.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from gguf import TokenType

import tokenizer
from chat_template import TEMPLATE
from network import Shape

ARCH = "qwen35moe"
ALWAYS_F32 = ("norm.weight", "ssm_a", "ssm_dt.bias", "ssm_conv1d.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight",
              "ssm_alpha.weight", "ssm_beta.weight")


def tensors_of(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Parameters by name -> tensors by the file's names."""
    out = {}
    for name, value in state.items():
        name = name.replace(".mixer.", ".").replace(".ffn.", ".")
        if name.endswith("ssm_a_log"):
            out[name.removesuffix("_log")] = -torch.exp(value)
        elif name.endswith("ssm_dt"):
            out[name + ".bias"] = value
        elif "ffn_gate_up" in name:
            gate, up = value.chunk(2, -2)
            out[name.replace("gate_up", "gate") + ".weight"], out[name.replace("gate_up", "up") + ".weight"] = gate, up
        elif name.endswith("ffn_gate_inp_shexp"):
            out[name + ".weight"] = value.reshape(-1)
        else:
            out[name + ".weight"] = value
    return out


def state_of(tensors: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The way back: tensors of a file -> parameters, for the names and shapes of `wanted`."""
    out = {}
    for name, like in wanted.items():
        stored = name.replace(".mixer.", ".").replace(".ffn.", ".")
        if name.endswith("ssm_a_log"):
            value = torch.log(-tensors[stored.removesuffix("_log")])
        elif name.endswith("ssm_dt"):
            value = tensors[stored + ".bias"]
        elif "ffn_gate_up" in name:
            value = torch.cat([tensors[stored.replace("gate_up", part) + ".weight"] for part in ("gate", "up")], -2)
        else:
            value = tensors[stored + ".weight"]
        out[name] = value.reshape(like.shape)
    return out


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a GGUF file, dequantized."""
    out = {}
    for t in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        out[t.name] = torch.from_numpy(values.reshape([int(n) for n in reversed(t.shape)]).copy())
    return out


def type_of(name: str, shape: tuple[int, ...], mix: str) -> T:
    if mix == "f32" or len(shape) < 2 or name.endswith(ALWAYS_F32):
        return T.F32
    if mix == "mix" and "_exps" in name:
        layer = int(name.split(".")[1])
        return (T.Q5_0, T.Q5_1)[layer % 2] if "down" in name else (T.Q4_0, T.Q4_1)[layer % 2]
    return T.Q8_0


def add_hyperparameters(w: gguf.GGUFWriter, s: Shape, draft_blocks: int) -> None:
    w.add_context_length(s.context)
    w.add_embedding_length(s.n_embd)
    w.add_block_count(s.n_layer + draft_blocks)
    w.add_head_count(s.n_head)
    w.add_head_count_kv(s.n_head_kv)
    w.add_key_length(s.head_dim)
    w.add_value_length(s.head_dim)
    w.add_layer_norm_rms_eps(s.eps)
    w.add_rope_freq_base(s.rope_base)
    w.add_rope_dimension_count(s.n_rot)
    w.add_rope_dimension_sections([3, 3, 2, 0])       # halves of RoPE per axis, as in Qwen's vision-ready files; text uses one position
    w.add_uint32(f"{ARCH}.full_attention_interval", s.interval)
    w.add_array(f"{ARCH}.attention.recurrent_layers", [s.recurrent(i) for i in range(s.n_layer)] + [False] * draft_blocks)
    w.add_ssm_conv_kernel(s.conv_kernel)
    w.add_ssm_state_size(s.state)
    w.add_ssm_group_count(s.n_key_head)
    w.add_ssm_time_step_rank(s.n_value_head)
    w.add_ssm_inner_size(s.n_value_head * s.state)
    w.add_expert_count(s.n_expert)
    w.add_expert_used_count(s.n_expert_used)
    w.add_expert_feed_forward_length(s.n_ff_exp)
    w.add_expert_shared_feed_forward_length(s.n_ff_shexp)
    if draft_blocks:
        w.add_uint32(f"{ARCH}.nextn_predict_layers", draft_blocks)


def add_vocabulary(w: gguf.GGUFWriter, tok) -> None:
    vocab = tok.get_vocab()
    by_id = {i: t for t, i in vocab.items()}
    kind = [TokenType.NORMAL] * tokenizer.N_ORDINARY + [TokenType.CONTROL] * len(tokenizer.CONTROL) + [
        TokenType.USER_DEFINED] * len(tokenizer.USER_DEFINED)
    tokens = [by_id[i] for i in range(len(kind))]
    while len(tokens) < tokenizer.N_VOCAB:
        tokens.append(f"[PAD{len(tokens)}]")
        kind.append(TokenType.UNUSED)
    merges = json.loads(tok.to_str())["model"]["merges"]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen35")
    w.add_token_list(tokens)
    w.add_token_types(kind)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    w.add_bos_token_id(tokenizer.END_OF_TEXT)
    w.add_eos_token_id(tokenizer.END_OF_TURN)
    w.add_pad_token_id(tokenizer.END_OF_TEXT)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE.read_text())


def write(path: Path, state: dict[str, torch.Tensor], s: Shape, tok, mix: str = "f32") -> None:
    """state holds the trunk's parameters and, if trained, the draft block's under blk.<n_layer>."""
    tensors = tensors_of(state)
    draft_blocks = int(any(name.startswith(f"blk.{s.n_layer}.") for name in tensors))
    w = gguf.GGUFWriter(path, ARCH)
    w.add_type("model")
    w.add_name("Sluice Demo")
    w.add_author("Sluice")
    w.add_license("mit")
    w.add_description("A tiny Qwen3.5-style mixture of experts that sums, knows a few facts and calls tools; made by tools/demo of Sluice.")
    w.add_size_label("32x0.3M")
    w.add_file_type({"f32": 0, "q8_0": 7, "mix": 8}[mix])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_float32("general.sampling.temp", 0.0)        # its answers are exact: greedy by default
    add_hyperparameters(w, s, draft_blocks)
    add_vocabulary(w, tok)
    for name, value in tensors.items():
        data = value.detach().float().contiguous().numpy()
        t = type_of(name, data.shape, mix)
        if t == T.F32:
            w.add_tensor(name, data)
        else:
            w.add_tensor(name, gguf.quants.quantize(data, t), raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("checkpoint", type=Path)
    ap.add_argument("out", type=Path)
    ap.add_argument("--type", default="f32", choices=["f32", "q8_0", "mix"])
    args = ap.parse_args()
    saved = torch.load(args.checkpoint, weights_only=True)
    write(args.out, saved["state"], Shape(), tokenizer.load(args.checkpoint.with_name("tokenizer.json")), args.type)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
