"""The gated delta rule over whole rows, in chunks, with a backward pass that is fast on a CPU.

Per value head, with state M [key, value], log decay g, write strength beta (Yang et al., "Gated Delta Networks", 2024):

    M <- exp(g_t) M;   d_t = beta_t (v_t - M^T k_t);   M <- M + k_t d_t^T;   o_t = M^T q_t

Inside a chunk of C tokens the d_t solve (I + A) D = beta V - (...) M0, where A[t][s] = beta_t (k_t . k_s) exp(G_t - G_s) for
s < t and G is the cumulative sum of g. The rest is matrix products. A library's triangular solve took most of the time here
(seconds for what takes milliseconds below), hence an inverse of our own.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64
LEAF = 16       # (I - A)(I + A^2)(I + A^4)(I + A^8) is exact for 16 x 16; doubling up to 64 that way loses precision


class InverseOfUnitLower(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A [.., C, C], C = 16 * 2^n."""

    @staticmethod
    def forward(ctx, a: Tensor) -> Tensor:
        size = a.shape[-1]
        leaf = torch.stack([a[..., i:i + LEAF, i:i + LEAF] for i in range(0, size, LEAF)], -3)
        inverse, power = torch.eye(LEAF) - leaf, leaf @ leaf
        for _ in range(3):
            inverse = inverse + inverse @ power
            power = power @ power
        blocks, width = list(inverse.unbind(-3)), LEAF
        while width < size:                               # [P 0; A21 Q]^-1 = [P^-1 0; -Q^-1 A21 P^-1  Q^-1]
            merged = []
            for j in range(0, len(blocks), 2):
                p, q = blocks[j], blocks[j + 1]
                below = -(q @ (a[..., (j + 1) * width:(j + 2) * width, j * width:(j + 1) * width] @ p))
                merged.append(torch.cat([torch.cat([p, torch.zeros_like(p)], -1), torch.cat([below, q], -1)], -2))
            blocks, width = merged, 2 * width
        ctx.save_for_backward(blocks[0])
        return blocks[0]

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        t = ctx.saved_tensors[0].transpose(-1, -2)
        return -(t @ grad @ t)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """q, k [B, T, Hk, S] of length one; v [B, T, Hv, S]; g, beta [B, T, Hv] -> [B, T, Hv, S]. T is a multiple of CHUNK.

    Value head h reads key head h mod Hk, so Hv splits into (R, Hk). Inner layout: [B, R, Hk, chunk, C, ..].
    """
    n, length, n_key, width = q.shape
    ratio, chunks = v.shape[2] // n_key, length // CHUNK
    keys = lambda x: x.view(n, chunks, CHUNK, n_key, width).permute(0, 3, 1, 2, 4).unsqueeze(1)       # R = 1, broadcast
    scalars = lambda x: x.view(n, chunks, CHUNK, ratio, n_key).permute(0, 3, 4, 1, 2)
    q, k = keys(q * width ** -0.5), keys(k)
    v = v.view(n, chunks, CHUNK, ratio, n_key, width).permute(0, 3, 4, 1, 2, 5)
    g, beta = scalars(g).cumsum(-1), scalars(beta)[..., None]

    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, -1e9).exp()        # masked first: above the diagonal exp overflows
    kt = k.transpose(-1, -2)
    solve = InverseOfUnitLower.apply((beta * (k @ kt) * decay).tril(-1))
    since_start, until_end = g.exp()[..., None], (g[..., -1:] - g).exp()[..., None]
    fresh = solve @ (beta * v)                                                         # deltas as if the state were empty
    seen = solve @ (beta * since_start * k)                                            # what the state takes off them
    inside = (q @ kt) * decay
    reads, writes = q * since_start, (k * until_end).transpose(-1, -2)
    whole = g[..., -1:].exp()[..., None]

    state = torch.zeros(n, ratio, n_key, width, width)
    out = []
    for c in range(chunks):
        delta = fresh[:, :, :, c] - seen[:, :, :, c] @ state
        out.append(reads[:, :, :, c] @ state + inside[:, :, :, c] @ delta)
        state = whole[:, :, :, c] * state + writes[:, :, :, c] @ delta
    return torch.stack(out, 3).permute(0, 3, 4, 1, 2, 5).reshape(n, length, ratio * n_key, width)
