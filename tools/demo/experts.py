"""The experts of one layer as one autograd function: tokens sorted by expert, one matrix product per expert.

Computing all experts densely would cost eight times as much; letting autograd follow per-expert slices costs more than the
products themselves at this size.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gate_up, down, chosen, weight):
        n, k = chosen.shape
        ff, d = down.shape[2], x.shape[1]
        by_expert, order = torch.sort(chosen.reshape(-1), stable=True)                 # the n k uses, grouped by expert
        counts = torch.bincount(by_expert, minlength=len(down)).tolist()
        token = order // k
        xs, hidden, ys = x[token], x.new_empty(n * k, 2 * ff), x.new_empty(n * k, d)
        groups = Mixture.groups(counts)
        for e, lo, hi in groups:
            torch.mm(xs[lo:hi], gate_up[e].t(), out=hidden[lo:hi])
        gate, up = hidden[:, :ff], hidden[:, ff:]
        sigmoid, weights = torch.sigmoid(gate), weight.reshape(-1)[order][:, None]
        active = gate * sigmoid * up * weights
        for e, lo, hi in groups:
            torch.mm(active[lo:hi], down[e].t(), out=ys[lo:hi])
        back = torch.empty_like(order)
        back[order] = torch.arange(n * k)
        ctx.save_for_backward(xs, gate_up, down, hidden, sigmoid, active, weights, back, token)
        ctx.groups, ctx.k = groups, k
        return ys[back].view(n, k, d).sum(1)

    @staticmethod
    def groups(counts):
        lo = 0
        out = []
        for e, count in enumerate(counts):
            if count:
                out.append((e, lo, lo + count))
            lo += count
        return out

    @staticmethod
    def backward(ctx, grad):
        xs, gate_up, down, hidden, sigmoid, active, weights, back, token = ctx.saved_tensors
        ff, d = down.shape[2], xs.shape[1]
        dys, dactive, ddown = grad[token], xs.new_empty(len(xs), ff), torch.zeros_like(down)
        for e, lo, hi in ctx.groups:
            torch.mm(dys[lo:hi], down[e], out=dactive[lo:hi])
            torch.mm(dys[lo:hi].t(), active[lo:hi], out=ddown[e])
        gate, up = hidden[:, :ff], hidden[:, ff:]
        silu = gate * sigmoid
        dweight = (dactive * silu * up).sum(1)
        dactive = dactive * weights
        dhidden = torch.empty_like(hidden)
        dhidden[:, ff:] = dactive * silu
        dhidden[:, :ff] = dactive * up * (sigmoid + silu * (1 - sigmoid))
        dgate_up, dxs = torch.zeros_like(gate_up), torch.empty_like(xs)
        for e, lo, hi in ctx.groups:
            torch.mm(dhidden[lo:hi], gate_up[e], out=dxs[lo:hi])
            torch.mm(dhidden[lo:hi].t(), xs[lo:hi], out=dgate_up[e])
        return dxs[back].view(-1, ctx.k, d).sum(1), dgate_up, ddown, None, dweight[back].view(-1, ctx.k)


def mixture(x: Tensor, gate_up: Tensor, down: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
    """x [n, d], gate_up [E, 2 ff, d] (rows: gate, then up), down [E, d, ff], chosen and weight [n, k] -> [n, d]"""
    return Mixture.apply(x, gate_up, down, chosen, weight)
