"""The network: a small `qwen35moe` transformer in float32, trained and sampled on a CPU.

What it is for: training (packed rows, fast backward) and greedy generation (one token a step, for evaluation).
What it is not for: speed at inference; the engine does that. The mathematics follow Qwen3.5's published configuration and
modelling code: RMS norms before each part, three gated-delta-net layers to one layer of gated full attention, and a
mixture of experts with a gated shared expert after each.

Parameters carry the names of the GGUF file (`blk.3.attn_q` is `blk.3.attn_q.weight` there) and are stored in the file's
own conventions: norm gains are plain factors, value heads stand in tiled order (value head h reads key head h mod n_key_head).
So export has nothing to permute. The two exceptions are named in export.py.

Shapes in comments: B rows, T positions, d = n_embd, S = state, Hk / Hv key and value heads, H / G query and KV heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from delta_rule import delta_rule
from experts import mixture


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. K-quants need rows of 256: n_embd is 256 for that reason."""

    n_vocab: int = 1024
    n_embd: int = 256
    n_layer: int = 8
    interval: int = 4           # every fourth layer is full attention
    n_key_head: int = 2
    n_value_head: int = 4
    state: int = 32             # width of a delta-net head
    conv_kernel: int = 4
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    n_rot: int = 16             # RoPE turns a quarter of each head, as in Qwen3.5
    rope_base: float = 1e7
    n_expert: int = 32
    n_expert_used: int = 4
    n_ff_exp: int = 32
    n_ff_shexp: int = 64
    eps: float = 1e-6
    context: int = 4096         # what the file announces; documents of training have at most 512 tokens

    def recurrent(self, layer: int) -> bool:
        return (layer + 1) % self.interval != 0

    @property
    def n_conv(self) -> int:
        """Channels that pass through the convolution: q and k heads, then v heads."""
        return 2 * self.n_key_head * self.state + self.n_value_head * self.state


DOCUMENT_START_DECAY = -40.0    # exp(-40) clears the recurrent state at a document's first token; more would cost precision in the cumulative sum
QUERY_TILE = 128                # attention runs over tiles of queries, and skips the keys before the oldest document that a tile sees


class Rows:
    """A batch of packed rows: where documents begin, and the masks that keep them from seeing each other."""

    def __init__(self, start: Tensor, used: Tensor):
        """start [B, T]: true at each document's first token. used [B, T]: false on padding."""
        n, length = start.shape
        self.start, self.used = start.bool(), used.bool()
        self.document = self.start.long().cumsum(1)                                    # [B, T]
        same = lambda shift: F.pad(self.document[:, shift:] == self.document[:, :-shift], (shift, 0))
        self.same = {shift: same(shift) for shift in (1, 2, 3)}                        # token t and t - shift share a document
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        self.visible = (self.document[:, :, None] == self.document[:, None, :]) & causal   # [B, T query, T key]
        index = torch.arange(length)
        first = torch.where(self.start, index, 0).cummax(1).values                     # first token of each token's document
        self.first_key = [int(first[:, t].min()) for t in range(0, length, QUERY_TILE)]
        self.position = index.expand(n, length)
        self.router = []                                                               # per layer: see MixtureOfExperts


def matrix(n_out: int, n_in: int, gain: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(n_out, n_in) * gain * n_in ** -0.5)


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def l2_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


class DeltaNet(nn.Module):
    """Gated delta net: a convolution of four taps, then a recurrent matrix per value head."""

    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        inner = s.n_value_head * s.state
        self.attn_qkv = matrix(s.n_conv, s.n_embd)
        self.attn_gate = matrix(inner, s.n_embd)
        self.ssm_alpha = matrix(s.n_value_head, s.n_embd, 0.3)
        self.ssm_beta = matrix(s.n_value_head, s.n_embd)
        self.ssm_conv1d = nn.Parameter(torch.randn(s.n_conv, s.conv_kernel) * 0.2 + torch.tensor([0, 0, 0, 0.7]))
        step = torch.exp(torch.empty(s.n_value_head).uniform_(math.log(0.003), math.log(0.15)))
        self.ssm_dt = nn.Parameter(step + torch.log(-torch.expm1(-step)))              # softplus^-1(step)
        self.ssm_a_log = nn.Parameter(torch.log(torch.empty(s.n_value_head).uniform_(1, 8)))
        self.ssm_norm = nn.Parameter(torch.ones(s.state))
        self.ssm_out = matrix(s.n_embd, inner, (2 * s.n_layer) ** -0.5)

    def projections(self, h: Tensor):
        """-> u [.., n_conv] before the convolution, z [.., Hv S], beta [.., Hv], log decay [.., Hv]"""
        decay = -self.ssm_a_log.exp() * F.softplus(F.linear(h, self.ssm_alpha) + self.ssm_dt)
        return F.linear(h, self.attn_qkv), F.linear(h, self.attn_gate), torch.sigmoid(F.linear(h, self.ssm_beta)), decay

    def heads(self, c: Tensor):
        """c [.., n_conv] after convolution and SiLU -> q, k [.., Hk, S] of length one, v [.., Hv, S]"""
        s, keys = self.s, self.s.n_key_head * self.s.state
        q, k, v = c.split([keys, keys, s.n_value_head * s.state], -1)
        return l2_norm(q.unflatten(-1, (-1, s.state))), l2_norm(k.unflatten(-1, (-1, s.state))), v.unflatten(-1, (-1, s.state))

    def output(self, o: Tensor, z: Tensor) -> Tensor:
        o = rms_norm(o, self.ssm_norm, self.s.eps) * F.silu(z.view_as(o))
        return F.linear(o.flatten(-2), self.ssm_out)

    def forward(self, h: Tensor, rows: Rows) -> Tensor:
        u, z, beta, decay = self.projections(h)
        c = u * self.ssm_conv1d[:, 3]
        for back in (1, 2, 3):
            tap = rows.same[back][..., None] * self.ssm_conv1d[:, 3 - back]
            c = c + F.pad(u, (0, 0, back, 0))[:, :-back] * tap
        q, k, v = self.heads(F.silu(c))
        decay = decay.masked_fill(rows.start[..., None], DOCUMENT_START_DECAY)
        return self.output(delta_rule(q, k, v, decay, beta), z)

    def new_state(self, n: int, length: int):
        s = self.s
        return [torch.zeros(n, s.conv_kernel - 1, s.n_conv), torch.zeros(n, s.n_value_head, s.state, s.state)]

    def step(self, h: Tensor, state: list, t: int) -> Tensor:
        """One token of every sequence: h [n, d]. The recurrent matrix M is [n, Hv, key, value]."""
        s = self.s
        u, z, beta, decay = self.projections(h)
        window = torch.cat([state[0], u[:, None]], 1)
        state[0] = window[:, 1:]
        q, k, v = self.heads(F.silu((window * self.ssm_conv1d.t()).sum(1)))
        times = s.n_value_head // s.n_key_head
        q, k = q.repeat(1, times, 1) * s.state ** -0.5, k.repeat(1, times, 1)          # tiled: head h reads h mod Hk
        m = state[1] * decay.exp()[..., None, None]
        delta = (v - (m * k[..., None]).sum(2)) * beta[..., None]
        state[1] = m + k[..., None] * delta[:, :, None]
        return self.output((state[1] * q[..., None]).sum(2), z)


class Attention(nn.Module):
    """Gated full attention: QK norm, RoPE on the first n_rot dimensions, sigmoid gate on the output."""

    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.attn_q = matrix(2 * s.n_head * s.head_dim, s.n_embd)                      # per head: q, then its gate
        self.attn_k = matrix(s.n_head_kv * s.head_dim, s.n_embd)
        self.attn_v = matrix(s.n_head_kv * s.head_dim, s.n_embd)
        self.attn_q_norm = nn.Parameter(torch.ones(s.head_dim))
        self.attn_k_norm = nn.Parameter(torch.ones(s.head_dim))
        self.attn_output = matrix(s.n_embd, s.n_head * s.head_dim, (2 * s.n_layer) ** -0.5)

    def rope(self, x: Tensor, position: Tensor) -> Tensor:
        """x [.., heads, head_dim], position [..]. Dimension j pairs with j + n_rot / 2."""
        half = self.s.n_rot // 2
        angle = position[..., None, None].float() * self.s.rope_base ** (-torch.arange(half) / half)
        a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest], -1)

    def queries(self, h: Tensor, position: Tensor):
        """-> q [.., H, D], gate [.., H D]"""
        s = self.s
        q, gate = F.linear(h, self.attn_q).unflatten(-1, (s.n_head, 2, s.head_dim)).unbind(-2)
        return self.rope(rms_norm(q, self.attn_q_norm, s.eps), position), torch.sigmoid(gate).flatten(-2)

    def keys(self, h: Tensor, position: Tensor):
        """-> k, v [.., G, D]"""
        s = self.s
        k = F.linear(h, self.attn_k).unflatten(-1, (s.n_head_kv, s.head_dim))
        v = F.linear(h, self.attn_v).unflatten(-1, (s.n_head_kv, s.head_dim))
        return self.rope(rms_norm(k, self.attn_k_norm, s.eps), position), v

    def by_group(self, q: Tensor) -> Tensor:
        """[B, T, H, D] -> [B, G, H/G, T, D], scaled"""
        return (q * self.s.head_dim ** -0.5).unflatten(2, (self.s.n_head_kv, -1)).permute(0, 2, 3, 1, 4)

    def forward(self, h: Tensor, rows: Rows) -> Tensor:
        q, gate = self.queries(h, rows.position)
        k, v = (x.transpose(1, 2) for x in self.keys(h, rows.position))                # [B, G, T, D]
        q = self.by_group(q)
        tiles = []
        for i, first in enumerate(rows.first_key):
            lo, hi = i * QUERY_TILE, min((i + 1) * QUERY_TILE, h.shape[1])
            tile = q[:, :, :, lo:hi]
            score = tile.flatten(2, 3) @ k[:, :, first:hi].transpose(-1, -2)           # [B, G, H/G tile, keys]
            score = score.view(*tile.shape[:-1], -1).masked_fill(~rows.visible[:, None, None, lo:hi, first:hi], -torch.inf)
            tiles.append((score.softmax(-1).flatten(2, 3) @ v[:, :, first:hi]).view(tile.shape))
        out = torch.cat(tiles, 3).permute(0, 3, 1, 2, 4).flatten(2)                    # [B, T, H D]
        return F.linear(out * gate, self.attn_output)

    def new_state(self, n: int, length: int):
        return [torch.zeros(n, self.s.n_head_kv, length, self.s.head_dim) for _ in "kv"]

    def step(self, h: Tensor, state: list, t: int) -> Tensor:
        position = torch.full((len(h), 1), t)
        q, gate = self.queries(h[:, None], position)
        k, v = self.keys(h[:, None], position)
        state[0][:, :, t], state[1][:, :, t] = k[:, 0], v[:, 0]
        score = self.by_group(q)[:, :, :, 0] @ state[0][:, :, :t + 1].transpose(-1, -2)
        return F.linear((score.softmax(-1) @ state[1][:, :, :t + 1]).flatten(1) * gate[:, 0], self.attn_output)


class MixtureOfExperts(nn.Module):
    """Top experts by softmax, weights renormalised; a shared expert behind a sigmoid gate."""

    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        out = (2 * s.n_layer) ** -0.5
        self.ffn_gate_inp = matrix(s.n_expert, s.n_embd)
        self.ffn_gate_up_exps = nn.Parameter(torch.randn(s.n_expert, 2 * s.n_ff_exp, s.n_embd) * s.n_embd ** -0.5)
        self.ffn_down_exps = nn.Parameter(torch.randn(s.n_expert, s.n_embd, s.n_ff_exp) * out * s.n_ff_exp ** -0.5)
        self.ffn_gate_inp_shexp = matrix(1, s.n_embd)
        self.ffn_gate_up_shexp = matrix(2 * s.n_ff_shexp, s.n_embd)
        self.ffn_down_shexp = matrix(s.n_embd, s.n_ff_shexp, out)

    def forward(self, x: Tensor, rows: Rows | None = None) -> Tensor:
        """x [.., d]. With rows, (probabilities, chosen experts), both [B T, ..], are appended to rows.router."""
        flat = x.reshape(-1, self.s.n_embd)
        probability = F.linear(flat, self.ffn_gate_inp).softmax(-1)
        weight, chosen = probability.topk(self.s.n_expert_used, -1)
        if rows is not None:
            rows.router.append((probability, chosen))
        y = mixture(flat, self.ffn_gate_up_exps, self.ffn_down_exps, chosen, weight / weight.sum(-1, keepdim=True))
        gate, up = F.linear(flat, self.ffn_gate_up_shexp).chunk(2, -1)
        shared = F.linear(F.silu(gate) * up, self.ffn_down_shexp)
        return (y + torch.sigmoid(F.linear(flat, self.ffn_gate_inp_shexp)) * shared).view(x.shape)


class Block(nn.Module):
    def __init__(self, s: Shape, recurrent: bool):
        super().__init__()
        self.s = s
        self.attn_norm = nn.Parameter(torch.ones(s.n_embd))
        self.post_attention_norm = nn.Parameter(torch.ones(s.n_embd))
        self.mixer = DeltaNet(s) if recurrent else Attention(s)
        self.ffn = MixtureOfExperts(s)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        x = x + self.mixer(rms_norm(x, self.attn_norm, self.s.eps), rows)
        return x + self.ffn(rms_norm(x, self.post_attention_norm, self.s.eps), rows)

    def step(self, x: Tensor, state: list, t: int) -> Tensor:
        x = x + self.mixer.step(rms_norm(x, self.attn_norm, self.s.eps), state, t)
        return x + self.ffn(rms_norm(x, self.post_attention_norm, self.s.eps))


class Network(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.token_embd = nn.Parameter(torch.randn(s.n_vocab, s.n_embd) * 0.5)
        self.blk = nn.ModuleList(Block(s, s.recurrent(i)) for i in range(s.n_layer))
        self.output_norm = nn.Parameter(torch.ones(s.n_embd))
        self.output = matrix(s.n_vocab, s.n_embd)

    def hidden(self, tokens: Tensor, rows: Rows) -> Tensor:
        """tokens [B, T] -> states after output_norm [B, T, d]: what the head and the draft head read"""
        x = self.token_embd[tokens]
        for block in self.blk:
            x = block(x, rows)
        return rms_norm(x, self.output_norm, self.s.eps)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.output)

    @torch.no_grad()
    def step(self, tokens: Tensor, states: list, t: int) -> Tensor:
        """tokens [n] at position t of n sequences -> logits [n, V]; states are changed in place"""
        x = self.token_embd[tokens]
        for block, state in zip(self.blk, states, strict=True):
            x = block.step(x, state, t)
        return self.logits(rms_norm(x, self.output_norm, self.s.eps))


@torch.no_grad()
def generate(net: Network, prompts: list[list[int]], limit: int, stop: set[int]) -> list[list[int]]:
    """Greedy continuations, all prompts in lock-step; each ends with a stop token or after `limit` tokens."""
    n, longest = len(prompts), max(map(len, prompts))
    states = [block.mixer.new_state(n, longest + limit) for block in net.blk]
    out: list[list[int]] = [[] for _ in prompts]
    ended = [False] * n
    tokens = [p[0] for p in prompts]
    for t in range(longest + limit - 1):
        best = net.step(torch.tensor(tokens), states, t).argmax(-1).tolist()
        for i, prompt in enumerate(prompts):
            if t + 1 < len(prompt):
                tokens[i] = prompt[t + 1]
            elif not ended[i]:
                tokens[i] = best[i]
                out[i].append(best[i])
                ended[i] = best[i] in stop or len(out[i]) == limit
        if all(ended):
            break
    return out
