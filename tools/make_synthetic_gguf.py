#!/usr/bin/env python3
"""Write a random-weight GGUF of architecture qwen35moe (Qwen3.6-35B-A3B shapes by default), or, with --experts 0, of
the dense architecture qwen35 (--preset qwen3.6-27b).

Standard library only.  The file is streamed: 20 GB takes about as long as the
disk needs.  Quantized blocks hold random codes, with f16 scales chosen so that
every weight matrix has zero mean and a standard deviation of 1/sqrt(fan_in):
activations stay O(1), so logits are finite and speed figures are not distorted
by NaN, inf or denormal arithmetic.

Speed fixtures only: the text such a model writes is noise, and its router is
close to uniform unless --skew is given, which real routers are not.

--skew 1 makes expert use resemble that of real models.  256 values of the residual
stream are the same for all tokens and 256 others depend on the token's topic (ids
64 k ... 64 k + 63 belong to topic k % 64); no layer writes to these 512, and the
router's weights on them decide how popular an expert is, in general and in a topic.
The output matrix prefers tokens of the current token's topic, so text sampled at
temperature 1 stays in a topic for about 8 tokens (greedy text falls into a loop).
Measured through llama.cpp with 12 layers, 256 experts, top 8, d_model 2048 (means
over layers; reuse: share of a token's experts that the token before used too;
top quarter: share of all uses that fall on the 64 most used experts; LRU: hit rate
of an expert cache with 64 slots a layer):
                                            reuse  top quarter   LRU 64
  --skew 0, any tokens                       4 %       41 %       27 %
  --skew 1, random tokens                    7 %       65 %       48 %
  --skew 1, topic runs of 8 tokens          36 %       67 %       75 %
  --skew 1, topic runs of 40 tokens         38 %       81 %       91 %
  --skew 1, sampled at temperature 1        36 %       77 %       76 %
(512 tokens each, so that few topics occur in runs of 40; 200 tokens for the last.)
Below d_model 1024 --skew has no effect.

Examples
  full size, llama-quantize's Q4_K_M rules  make_synthetic_gguf.py -o full.gguf
  half depth                                make_synthetic_gguf.py --layers 20 -o half.gguf
  with popular experts                      make_synthetic_gguf.py --skew 1 -o full.gguf
  small, for a load test                    make_synthetic_gguf.py --preset tiny -o tiny.gguf
  sizes only                                make_synthetic_gguf.py --dry-run
"""
import argparse
import array
import json
import math
import os
import random
import re
import struct
import sys
import time
import zlib

# ---------------------------------------------------------------- ggml types
# name: (ggml type id, values in a block, bytes in a block)
TYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2),
    "Q4_0": (2, 32, 18), "Q5_0": (6, 32, 22), "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210),
    "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "MXFP4": (39, 32, 17),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ2_S": (22, 256, 82), "IQ3_XXS": (18, 256, 98), "IQ3_S": (21, 256, 110),
}
FILE_TYPE = {"q4_k_m": 15, "q4_k_s": 14, "q8_0": 7, "q6_k": 18, "q5_k_m": 17, "ud_q4": 15, "iq4_xs": 30,
             "q4_0": 2, "q3_k": 12, "q2_k": 10, "mxfp4": 38, "f16": 1, "bf16": 32,
             "ud_iq3_s": 26, "ud_iq3_xxs": 23}


def f16(x):
    return struct.pack("<e", x)


def table(fn):
    return bytes(fn(r) & 0xFF for r in range(256))


# Random byte -> a byte of the 12-byte scale field of Q4_K/Q5_K that gives 6-bit
# scales of 32..63: bits 0-4 free, bit 5 set, top two bits 2 or 3.
T_K4LO = table(lambda r: (r & 0x5F) | 0xA0)
T_TWIN = table(lambda r: (r & 15) * 17)                       # same nibble twice: min == scale
T_Q6SC = table(lambda r: (64 + (r & 63)) * (1 if r & 64 else -1))  # int8 of magnitude 64..127
JITTER = [0.75 + 0.5 * r / 255 for r in range(256)]           # block scale varies by +-25 %


def scale_tables(base, ratios):
    """For each ratio, the (low, high) byte tables of f16(base * jitter * ratio)."""
    out = []
    for ratio in ratios:
        h = [f16(base * j * ratio) for j in JITTER]
        out.append((bytes(b[0] for b in h), bytes(b[1] for b in h)))
    return out


class Gen:
    """Random data of one ggml type whose values have standard deviation sigma."""

    def __init__(self, typ, sigma, rng):
        self.typ, self.sigma, self.rng = typ, sigma, rng
        self.tid, self.blk, self.size = TYPES[typ]
        s = sigma / 1.01                                       # jitter's rms
        self.tabs = {
            "Q4_K": lambda: scale_tables(s / 223.2, (1, 7.5)),
            "Q5_K": lambda: scale_tables(s / 446.9, (1, 15.5)),
            "Q6_K": lambda: scale_tables(s / 1801.0, (1,)),
            "Q8_0": lambda: scale_tables(s / 73.9, (1,)),
            "Q4_0": lambda: scale_tables(s / 4.64, (1,)),
            "Q5_0": lambda: scale_tables(s / 9.25, (1,)),
            "Q2_K": lambda: scale_tables(s / 9.84, (1, 1.5)),
            "Q3_K": lambda: scale_tables(s / 43.3, (1,)),
            "IQ4_NL": lambda: scale_tables(s / 71.0, (1,)),
            "IQ4_XS": lambda: scale_tables(s / 1312.0, (1,)),
            "IQ2_XXS": lambda: scale_tables(s / 53.5, (1,)),
            "IQ2_XS": lambda: scale_tables(s / 55.9, (1,)),
            "IQ2_S": lambda: scale_tables(s / 56.4, (1,)),
            "IQ3_XXS": lambda: scale_tables(s / 142.4, (1,)),
            "IQ3_S": lambda: scale_tables(s / 140.0, (1,)),
        }.get(typ, lambda: None)()

    def _scales(self, b, offs, n):
        pick = self.rng.randbytes(n)
        for off, (lo, hi) in zip(offs, self.tabs):
            b[off::self.size] = pick.translate(lo)
            b[off + 1::self.size] = pick.translate(hi)

    def blocks(self, n):
        rng, S, t = self.rng, self.size, self.typ
        if t in ("F32", "F16", "BF16"):
            k = self.sigma * 3 ** 0.5 / 32768.0                # uniform with this sigma
            v = array.array("h", rng.randbytes(2 * n))
            if t == "F32":
                return bytearray(array.array("f", [x * k for x in v]).tobytes())
            if t == "F16":
                return bytearray(struct.pack("<%de" % n, *[x * k for x in v]))
            f = array.array("f", [x * k for x in v]).tobytes()
            out = bytearray(2 * n)
            out[0::2], out[1::2] = f[2::4], f[3::4]
            return out
        b = bytearray(rng.randbytes(n * S))
        if t in ("Q4_K", "Q5_K"):                              # d dmin scales[12] ...
            self._scales(b, (0, 2), n)
            for j in range(4):
                lo = rng.randbytes(n).translate(T_K4LO)
                b[4 + j::S] = lo                               # scale j, high bits of scale j+4
                b[8 + j::S] = lo                               # min j = scale j
                b[12 + j::S] = rng.randbytes(n).translate(T_TWIN)
        elif t == "Q6_K":                                      # ql[128] qh[64] scales[16] d
            for j in range(16):
                b[192 + j::S] = rng.randbytes(n).translate(T_Q6SC)
            self._scales(b, (208,), n)
        elif t == "Q2_K":                                      # scales[16] qs[64] d dmin
            for j in range(16):
                b[j::S] = rng.randbytes(n).translate(T_TWIN)
            self._scales(b, (80, 82), n)
        elif t == "Q3_K":                                      # hmask[32] qs[64] scales[12] d
            self._scales(b, (108,), n)
        elif t == "MXFP4":                                     # e qs[16]
            e = 128 + round(math.log2(self.sigma / 5.2))
            b[0::S] = bytes([max(1, min(254, e))]) * n
        else:                                                  # d first
            self._scales(b, (0,), n)
        return b


# ------------------------------------------------------------------- tensors
def more_bits(i, n):
    """Which layers llama-quantize's _M mixes give more bits."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def pick_type(mix, name, il, n_layer, n_attn, i_attn):
    down = "ffn_down" in name
    if mix in ("f16", "bf16", "q8_0", "q6_k", "q4_0", "iq4_xs", "q3_k", "q2_k", "mxfp4"):
        t = mix.upper()
        if name == "output.weight" and t not in ("F16", "BF16", "Q8_0"):
            return "Q6_K"
        if t == "MXFP4" and "_exps" not in name:
            return "Q8_0"
        return t
    if mix == "ud_q4":          # the public dynamic mixes keep what every token reads at 8 bits
        if "_exps" in name:
            return "Q5_K" if down else "Q4_K"
        return "Q6_K" if name in ("token_embd.weight", "output.weight") else "Q8_0"
    if mix in ("ud_iq3_s", "ud_iq3_xxs"):
        if "_exps" in name:
            return "IQ2_S" if not down else mix[3:].upper()
        return "Q6_K"
    base = "Q5_K" if mix == "q5_k_m" else "Q4_K"
    if name == "output.weight":
        return "Q6_K"
    if mix in ("q4_k_m", "q5_k_m"):
        if "attn_v." in name and more_bits(i_attn, n_attn):
            return "Q6_K"
        if "attn_qkv" in name:
            return "Q6_K" if mix == "q5_k_m" else "Q5_K"
        if down and more_bits(il, n_layer):
            return "Q6_K"
    if mix == "q4_k_s" and down and il < n_layer // 8:
        return "Q5_K"
    return base


def tensors(a):
    """[(name, dims in ggml order, kind, sigma or (lo, hi), type)]; kind: mat, norm or uni."""
    out = []
    D, E, F, S = a.d_model, a.experts, a.ff, a.shexp_ff
    kd, vd = a.ssm_state * a.ssm_groups, a.ssm_state * a.ssm_dt_rank
    attn = [i for i in range(a.layers) if (i + 1) % a.interval == 0]

    def mat(name, dims, il=0, fan=None, sigma=None, typ=None):
        i_attn = attn.index(il) if il in attn else 0
        t = typ or pick_type(a.mix, name, il, a.layers, len(attn), i_attn)
        for pat, o in a.override:
            if re.search(pat, name):
                t = o
        if dims[0] % TYPES[t][1]:
            t = "Q8_0" if dims[0] % 32 == 0 else "F32"
        out.append((name, dims, "mat", sigma or (fan or dims[0]) ** -0.5, t))

    def norm(name, n):
        out.append((name, (n,), "norm", (0.9, 1.1), "F32"))

    def uni(name, n, lo, hi):
        out.append((name, (n,), "uni", (lo, hi), "F32"))

    mat("token_embd.weight", (D, a.vocab), sigma=1.0)
    for i in range(a.layers):
        p = "blk.%d." % i
        norm(p + "attn_norm.weight", D)
        if i in attn:
            mat(p + "attn_q.weight", (D, a.head_dim * a.heads * 2), i)      # query and output gate
            mat(p + "attn_k.weight", (D, a.head_dim * a.kv_heads), i)
            mat(p + "attn_v.weight", (D, a.head_dim * a.kv_heads), i)
            norm(p + "attn_q_norm.weight", a.head_dim)
            norm(p + "attn_k_norm.weight", a.head_dim)
            mat(p + "attn_output.weight", (a.head_dim * a.heads, D), i)
        else:
            mat(p + "attn_qkv.weight", (D, 2 * kd + vd), i)
            mat(p + "attn_gate.weight", (D, vd), i)
            mat(p + "ssm_conv1d.weight", (a.ssm_conv, 2 * kd + vd), i, typ="F32")
            uni(p + "ssm_dt.bias", a.ssm_dt_rank, -5.0, -1.0)
            uni(p + "ssm_a", a.ssm_dt_rank, -8.0, -0.5)
            mat(p + "ssm_beta.weight", (D, a.ssm_dt_rank), i)
            mat(p + "ssm_alpha.weight", (D, a.ssm_dt_rank), i)
            norm(p + "ssm_norm.weight", a.ssm_state)
            mat(p + "ssm_out.weight", (vd, D), i)
        norm(p + "post_attention_norm.weight", D)
        if not E:
            mat(p + "ffn_gate.weight", (D, F), i)
            mat(p + "ffn_up.weight", (D, F), i)
            mat(p + "ffn_down.weight", (F, D), i)
            continue
        mat(p + "ffn_gate_inp.weight", (D, E), i, typ="F32", sigma=a.router_std * D ** -0.5)
        if a.fuse_gate_up:
            mat(p + "ffn_gate_up_exps.weight", (D, 2 * F, E), i)
        else:
            mat(p + "ffn_gate_exps.weight", (D, F, E), i)
            mat(p + "ffn_up_exps.weight", (D, F, E), i)
        mat(p + "ffn_down_exps.weight", (F, D, E), i)
        out.append((p + "ffn_gate_inp_shexp.weight", (D,), "uni",
                    (-(3.0 / D) ** 0.5, (3.0 / D) ** 0.5), "F32"))
        mat(p + "ffn_gate_shexp.weight", (D, S), i)
        mat(p + "ffn_up_shexp.weight", (D, S), i)
        mat(p + "ffn_down_shexp.weight", (S, D), i)
    norm("output_norm.weight", D)
    if not a.tie:
        mat("output.weight", (D, a.vocab))
    return out


def nbytes(dims, typ):
    n = 1
    for d in dims:
        n *= d
    _, blk, size = TYPES[typ]
    assert dims[0] % blk == 0, (dims, typ)
    return n // blk * size


# ------------------------------------------------------------------ metadata
U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9


def s_(x):
    b = x.encode("utf-8") if isinstance(x, str) else x
    return struct.pack("<Q", len(b)) + b


def kv(key, typ, val, sub=None):
    h = s_(key) + struct.pack("<I", typ)
    if typ == STR:
        return h + s_(val)
    if typ == ARR:
        h += struct.pack("<IQ", sub, len(val))
        if sub == STR:
            return h + b"".join(s_(v) for v in val)
        return h + b"".join(struct.pack({U32: "<I", I32: "<i", F32: "<f"}[sub], v) for v in val)
    return h + struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[typ], val)


def byte_symbols():
    """The printable stand-in that byte-level BPE uses for each of the 256 bytes."""
    keep = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    out, extra = [], 0
    for b in range(256):
        if b in keep:
            out.append(chr(b))
        else:
            out.append(chr(256 + extra))
            extra += 1
    return out


def vocab(n):
    """256 byte tokens, a few merges, dummies, and special tokens near the end."""
    sp = byte_symbols()[0x20]
    words = [(sp, "t"), ("h", "e"), ("i", "n"), ("r", "e"), ("o", "n"), (sp, "a"), (sp + "t", "he"), (sp, "s")]
    toks = byte_symbols() + [x + y for x, y in words]
    merges = ["%s %s" % w for w in words]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    first = n - 276 if n >= 1024 else n - len(special)          # 248044 of 248320, as in Qwen3.5/3.6
    assert first >= len(toks), "vocabulary too small (>= %d)" % (len(toks) + len(special))
    toks += ["%sd%d" % (sp, i) for i in range(len(toks), first)]
    types = [1] * first
    toks += special
    types += [3, 3, 3, 4, 4]
    while len(toks) < n:
        toks.append("<|pad_%d|>" % len(toks))
        types.append(5)                                          # unused
    return toks, types, merges, {"endoftext": first, "im_start": first + 1, "im_end": first + 2}


CHAT = ("{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")


def metadata(a):
    arch = "qwen35moe" if a.experts else "qwen35"
    A = arch + "."
    toks, types, merges, sp = vocab(a.vocab)
    half = a.rope_dim // 2
    t = half // 3
    sect = [half - t - (half - t) // 2, (half - t) // 2, t, 0]    # 64 -> 11, 11, 10, 0
    out = [
        kv("general.architecture", STR, arch),
        kv("general.type", STR, "model"),
        kv("general.name", STR, a.name),
        kv("general.description", STR, "random weights for speed tests; says nothing sensible"),
        kv("general.size_label", STR, a.label),
        kv("general.quantization_version", U32, 2),
        kv("general.file_type", U32, FILE_TYPE[a.mix]),
        kv(A + "block_count", U32, a.layers),
        kv(A + "context_length", U32, a.ctx),
        kv(A + "embedding_length", U32, a.d_model),
        kv(A + "attention.head_count", U32, a.heads),
        kv(A + "attention.head_count_kv", U32, a.kv_heads),
        kv(A + "attention.key_length", U32, a.head_dim),
        kv(A + "attention.value_length", U32, a.head_dim),
        kv(A + "attention.layer_norm_rms_epsilon", F32, 1e-6),
        kv(A + "rope.dimension_count", U32, a.rope_dim),
        kv(A + "rope.dimension_sections", ARR, sect, I32),
        kv(A + "rope.freq_base", F32, 1e7),
        *([kv(A + "expert_count", U32, a.experts),
           kv(A + "expert_used_count", U32, a.experts_used),
           kv(A + "expert_feed_forward_length", U32, a.ff),
           kv(A + "expert_shared_feed_forward_length", U32, a.shexp_ff)] if a.experts else
          [kv(A + "feed_forward_length", U32, a.ff)]),
        kv(A + "ssm.conv_kernel", U32, a.ssm_conv),
        kv(A + "ssm.state_size", U32, a.ssm_state),
        kv(A + "ssm.group_count", U32, a.ssm_groups),
        kv(A + "ssm.time_step_rank", U32, a.ssm_dt_rank),
        kv(A + "ssm.inner_size", U32, a.ssm_state * a.ssm_dt_rank),
        kv(A + "full_attention_interval", U32, a.interval),
        kv("tokenizer.ggml.model", STR, "gpt2"),
        kv("tokenizer.ggml.pre", STR, "qwen35"),
        kv("tokenizer.ggml.tokens", ARR, toks, STR),
        kv("tokenizer.ggml.token_type", ARR, types, I32),
        kv("tokenizer.ggml.merges", ARR, merges, STR),
        kv("tokenizer.ggml.eos_token_id", U32, sp["im_end"]),
        kv("tokenizer.ggml.padding_token_id", U32, sp["endoftext"]),
        kv("tokenizer.ggml.bos_token_id", U32, sp["endoftext"]),
        kv("tokenizer.ggml.add_bos_token", BOOL, False),
        kv("tokenizer.chat_template", STR, CHAT),
    ]
    return out


# --------------------------------------------------------------------- write
SHARED = 256                    # values of the residual stream that --shared-dir and --skew make the same for all tokens
TOPICS, TOPIC_RUN = 64, 64      # --skew: ids 64 k ... 64 k + 63 belong to topic k % 64
AMP = 3.0                       # size of the shared and of the topic values; the other values of an embedding have size 1
POPULAR, TOPICAL, TO_OUTPUT = 0.5, 1.1, 6.0


def rest_rms(il):
    """Size of the other values of the residual stream before layer il's router (measured)."""
    return (1.0 + 0.44 * (il + 1)) ** 0.5


def signs(typ, bits, c):
    """256 values +c or -c, as the bits say, encoded as typ; None where that is not supported."""
    if typ in ("F32", "F16"):
        return struct.pack("<256" + ("f" if typ == "F32" else "e"), *[c if b else -c for b in bits])
    if typ == "BF16":
        return b"".join(struct.pack("<f", c if b else -c)[2:] for b in bits)
    if typ == "Q8_0":
        return b"".join(f16(c / 127) + bytes(127 if b else 129 for b in bits[i:i + 32]) for i in range(0, 256, 32))
    if typ in ("Q4_K", "Q5_K"):                                # all scales and minima 63
        top = 7.5 if typ == "Q4_K" else 15.5
        qs = bytes(15 * bits[g + i] + 240 * bits[g + 32 + i] for g in range(0, 256, 64) for i in range(32))
        qh = bytes(sum(bits[32 * j + i] << j for j in range(8)) for i in range(32)) if typ == "Q5_K" else b""
        return f16(c / top / 63) + f16(c / 63) + b"\xff" * 12 + qh + qs
    if typ == "Q6_K":                                          # codes 63 and 1 of 32 +- 31
        ql, qh = bytearray(), bytearray()
        for h in (0, 128):
            v = [63 if b else 1 for b in bits[h:h + 128]]
            ql += bytes((v[i] & 15) | (v[i + 64] & 15) << 4 for i in range(64))
            qh += bytes(v[i] >> 4 | v[i + 32] >> 4 << 2 | v[i + 64] >> 4 << 4 | v[i + 96] >> 4 << 6 for i in range(32))
        return bytes(ql + qh) + b"\x40" * 16 + f16(c / 31 / 64)
    return None


def skew_all(a):
    return a.skew > 0 and a.d_model >= 4 * SHARED


def topic_bits(a):
    rng = random.Random(a.seed ^ 0x70B1C5)
    return [[rng.getrandbits(1) for _ in range(256)] for _ in range(TOPICS)]


def write_tensor(f, a, name, dims, kind, par, typ):
    rng = random.Random((a.seed << 32) ^ zlib.crc32(name.encode()))
    total = nbytes(dims, typ)
    if kind != "mat":
        lo, hi = par
        f.write(array.array("f", [rng.uniform(lo, hi) for _ in range(dims[0])]).tobytes())
        return total
    _, blk, size = TYPES[typ]
    g = Gen(typ, par, rng)
    n = total // size
    skew = skew_all(a) and len(dims) > 1
    head = name in ("token_embd.weight", "output.weight")
    shared = a.shared_dir or (AMP if skew else 0)
    if head and size > 4 and 256 % blk == 0 and (skew or shared > 0 and name == "token_embd.weight" and dims[0] > SHARED):
        # Every token's first 256 values are one fixed pattern: a direction shared by
        # all tokens, through which the router prefers some experts.  With --skew the
        # next 256 are one of a few patterns, by the token's topic, in the output matrix too,
        # so that a token makes tokens of its own topic likelier.
        k = 256 // blk
        fixed = bytes(Gen(typ, par * shared, rng).blocks(k)) if name == "token_embd.weight" else b""
        c = AMP * par if name == "token_embd.weight" else TO_OUTPUT * rest_rms(a.layers) / (256 * AMP)
        topics = [signs(typ, b, c) for b in topic_bits(a)] if skew else []
        topics = topics if topics and topics[0] else []
        per = dims[0] // blk
        step = max(1, (4 << 20) // (per * size))
        for r in range(0, dims[1], step):
            rows = min(step, dims[1] - r)
            b = g.blocks(rows * per)
            for q in range(rows):
                o = q * per * size
                b[o:o + len(fixed)] = fixed
                if topics:
                    o += k * size
                    b[o:o + k * size] = topics[(r + q) // TOPIC_RUN % TOPICS]
            f.write(b)
        return total
    chunk = max(1, (4 << 20) // size)
    if skew and "ffn_gate_inp.weight" in name:
        # What the shared values add to a router logit is the expert's popularity, what the
        # topic values add stays the same from token to token while the topic does.
        gain = a.skew * rest_rms(int(name.split(".")[1])) * ((dims[0] - 2 * SHARED) / SHARED) ** 0.5 / AMP
        popular, topical = Gen(typ, par * gain * POPULAR, rng), Gen(typ, par * gain * TOPICAL, rng)
        for _ in range(dims[1]):
            f.write(popular.blocks(SHARED // blk))
            f.write(topical.blocks(SHARED // blk))
            f.write(g.blocks(dims[0] // blk - 2 * (SHARED // blk)))
        return total
    quiet = 0                                                    # blocks of zeros that start each matrix
    if skew_all(a) and re.search(r"attn_output|ssm_out|ffn_down_(sh)?exp", name):
        quiet = 2 * SHARED * dims[0] // blk                      # no layer writes to the shared and topic values
    parts = dims[2] if len(dims) > 2 and quiet else 1
    pooled = "_exps" in name and not a.unique and total > a.pool << 20
    if pooled:                                                   # experts: slices of a fresh pool
        pool_n = (a.pool << 20) // size
        pool = memoryview(g.blocks(pool_n))
        chunk = min(pool_n, max(1, (512 << 10) // size))
    for _ in range(parts):
        left = n // parts - quiet
        f.write(bytes(quiet * size))
        while left:
            m = min(left, chunk)
            if pooled:
                o = rng.randrange(pool_n - m + 1) if pool_n > m else 0
                f.write(pool[o * size:(o + m) * size])
            else:
                f.write(g.blocks(m))
            left -= m
    return total


# Options that say how large the model is: name, value in qwen3.6-35b-a3b, meaning.
SHAPES = (
    ("layers", 40, "blocks"), ("experts", 256, "experts of a layer; 0: a dense model"),
    ("experts-used", 8, "experts that a token uses"), ("d-model", 2048, "width of the residual stream"),
    ("ff", 512, "width of an expert, or of a dense feed-forward layer"), ("shexp-ff", 512, "width of the shared expert"),
    ("heads", 16, "query heads"), ("kv-heads", 2, "key and value heads"), ("head-dim", 256, "width of a head"),
    ("rope-dim", 64, "dimensions of a head that are rotated"), ("ssm-state", 128, "width of a delta net head"),
    ("ssm-groups", 16, "delta net key heads"), ("ssm-dt-rank", 32, "delta net value heads"),
    ("ssm-conv", 4, "taps of the convolution"), ("interval", 4, "every how many layers one has full attention"),
    ("vocab", 248320, "tokens of the vocabulary"), ("ctx", 262144, "tokens of context that the file claims"),
)

PRESETS = {
    "qwen3.6-35b-a3b": {},
    "tiny": dict(layers=8, experts=32, experts_used=4, d_model=512, ff=256, shexp_ff=256, heads=4, kv_heads=2,
                 head_dim=64, rope_dim=32, ssm_state=64, ssm_groups=4, ssm_dt_rank=8, vocab=4096, ctx=8192),
    "mini": dict(layers=8, experts=64, experts_used=8, d_model=1024, ff=512, shexp_ff=512, heads=8, kv_heads=2,
                 head_dim=128, rope_dim=32, ssm_state=128, ssm_groups=8, ssm_dt_rank=16, vocab=32768, ctx=32768),
    "qwen3.6-27b": dict(layers=64, experts=0, d_model=5120, ff=17408, heads=24, kv_heads=4, ssm_dt_rank=48),
    "tiny-dense": dict(layers=8, experts=0, d_model=512, ff=1536, heads=4, kv_heads=2, head_dim=64, rope_dim=32, ssm_state=64,
                       ssm_groups=4, ssm_dt_rank=12, vocab=4096, ctx=8192),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap = parser.add_argument_group("model")
    ap.add_argument("-o", "--out", metavar="FILE", help="the GGUF file to write")
    ap.add_argument("--preset", choices=sorted(PRESETS), default="qwen3.6-35b-a3b",
                    help="shapes to start from (default %(default)s)")
    ap.add_argument("--mix", choices=sorted(FILE_TYPE), default="q4_k_m",
                    help="which tensor gets which type, as llama-quantize names it; ud_*: as the public dynamic mixes "
                         "(default %(default)s)")
    ap.add_argument("--override", action="append", default=[], metavar="REGEX=TYPE",
                    help="type of the matrices whose name matches, e.g. ffn_down_exps=Q5_K")
    shapes = parser.add_argument_group("shapes", "In place of the preset's; defaults are those of qwen3.6-35b-a3b.")
    for flag, default, meaning in SHAPES:
        shapes.add_argument("--" + flag, type=int, default=None, metavar="N", help="%s (%d)" % (meaning, default))
    ap = parser.add_argument_group("data")
    ap.add_argument("--router-std", type=float, default=1.0, help="standard deviation of the router logits (default 1)")
    ap.add_argument("--shared-dir", type=float, default=0.0,
                    help="size of a direction that all tokens share, which makes some experts of the first layers popular "
                         "(0: none; --skew does more)")
    ap.add_argument("--skew", type=float, default=0.0, metavar="S",
                    help="popular experts and expert reuse between tokens, about as in real models at 1 (0: none); see above")
    ap.add_argument("--fuse-gate-up", action="store_true", help="one ffn_gate_up_exps tensor")
    ap.add_argument("--tie", action="store_true", help="no output.weight")
    ap.add_argument("--dense-only", action="store_true",
                    help="leave the routed experts out (for engines that read them from elsewhere)")
    ap.add_argument("--unique", action="store_true", help="fresh random bytes for all of every expert (slower)")
    ap.add_argument("--pool", type=int, default=16, help="MiB of fresh data per expert tensor (default 16)")
    ap.add_argument("--align", type=int, default=32, help="alignment of tensors in the file, in bytes (default 32)")
    ap.add_argument("--seed", type=int, default=1, help="of the random numbers; the same file for the same seed (default 1)")
    ap.add_argument("--name", default=None, help="general.name of the model (default: made of its shapes)")
    ap.add_argument("--dry-run", action="store_true", help="print the sizes only")
    ap.add_argument("--json", action="store_true", help="print the figures as JSON")
    a = parser.parse_args()
    for flag, default, _ in SHAPES:
        name = flag.replace("-", "_")
        if getattr(a, name) is None:
            setattr(a, name, PRESETS[a.preset].get(name, default))
    a.override = [(o.rsplit("=", 1)[0], o.rsplit("=", 1)[1].upper()) for o in a.override]
    a.label = "%dx%dx%d" % (a.layers, a.experts, a.d_model)
    a.name = a.name or "synthetic-%s-%s-%s" % ("qwen35moe" if a.experts else "qwen35", a.label, a.mix)
    if not a.experts and (a.skew or a.shared_dir or a.dense_only):
        parser.error("--skew, --shared-dir and --dense-only are for models with experts")
    if not a.out and not a.dry_run:
        parser.error("name the file to write with -o FILE, or give --dry-run")

    ts = tensors(a)
    full = ts
    if a.dense_only:
        ts = [t for t in ts if "_exps" not in t[0]]
    info, off, exp, dense, per_type, per_layer = b"", 0, 0, 0, {}, {}
    for name, dims, kind, par, typ in ts:
        n = nbytes(dims, typ)
        info += s_(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        info += struct.pack("<IQ", TYPES[typ][0], off)
        off += (n + a.align - 1) // a.align * a.align
    for name, dims, kind, par, typ in full:
        n = nbytes(dims, typ)
        per_type[typ] = per_type.get(typ, 0) + n
        if "_exps" in name:
            exp += n
            il = int(name.split(".")[1])
            per_layer[il] = per_layer.get(il, 0) + n
        elif name != "token_embd.weight" or a.tie:
            dense += n
    emb = [nbytes(d, t) // d[1] for n, d, _, _, t in ts if n == "token_embd.weight"][0]
    facts = {
        "tensors": len(ts), "data_bytes": off, "expert_bytes": exp,
        "expert_bytes_per_layer_min": min(per_layer.values(), default=0),
        "expert_bytes_per_layer_max": max(per_layer.values(), default=0),
        "one_expert_bytes_avg": exp // max(1, a.layers * a.experts),
        "dense_bytes_per_token": dense + emb, "routed_bytes_per_token": exp * a.experts_used // max(1, a.experts),
        "bytes_per_token": dense + emb + exp * a.experts_used // max(1, a.experts), "bytes_by_type": per_type,
    }
    if a.json:
        print(json.dumps(facts))
    else:
        for k, v in facts.items():
            print("%-28s %s" % (k, v))
    if a.dry_run:
        return

    kvs = metadata(a)
    if a.align != 32:
        kvs.insert(0, kv("general.alignment", U32, a.align))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(ts), len(kvs)) + b"".join(kvs) + info
    t0, done = time.time(), 0
    tmp = a.out + ".part"
    with open(tmp, "wb", buffering=0) as raw:
        class W:                                                  # write() that never writes short
            @staticmethod
            def write(b):
                m = memoryview(b)
                while len(m):
                    m = m[raw.write(m):]
        W.write(head + b"\0" * (-len(head) % a.align))
        for i, (name, dims, kind, par, typ) in enumerate(ts):
            n = write_tensor(W, a, name, dims, kind, par, typ)
            pad = -n % a.align
            if pad:
                W.write(b"\0" * pad)
            done += n + pad
            if sys.stderr.isatty() or i % 100 == 99:
                print("%5.1f %%  %.0f MB/s" % (100.0 * done / off, done / 1e6 / max(1e-3, time.time() - t0)), file=sys.stderr)
        assert done == off, (done, off)
    os.replace(tmp, a.out)
    print("wrote %s: %d bytes in %.1f s" % (a.out, os.path.getsize(a.out), time.time() - t0))


if __name__ == "__main__":
    main()
