"""Muon for the matrices, AdamW for the rest, over the parameters that one of several processes owns.

Muon (Jordan et al., 2024): the momentum of a matrix is replaced by a nearby orthogonal matrix, by five Newton-Schulz steps, so
that all directions of a layer learn at the same rate. Each expert, and gate and up rows apart, count as a matrix of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MUON_RATE, MUON_MOMENTUM, MUON_DECAY = 0.02, 0.95, 0.05
ADAM_RATE, ADAM_BETAS = 3e-3, (0.9, 0.98)
# Matrices whose rows are looked up, or that are small and sensitive, go to AdamW.
NOT_FOR_MUON = ("token_embd", "output", "ffn_gate_inp", "ffn_gate_inp_shexp", "ssm_conv1d", "ssm_alpha", "ssm_beta")


def orthogonal(g: Tensor) -> Tensor:
    """g [.., r, c] -> U V^T of its singular value decomposition, roughly (singular values between about 0.7 and 1.2)."""
    tall = g.shape[-2] > g.shape[-1]
    x = g.transpose(-1, -2) if tall else g
    x = x / (x.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.transpose(-1, -2) if tall else x


def shares(params: list[nn.Parameter], processes: int) -> list[list[int]]:
    """Indices of the parameters that each process updates, of about equal size."""
    out, load = [[] for _ in range(processes)], [0] * processes
    for i in sorted(range(len(params)), key=lambda i: -params[i].numel()):
        least = load.index(min(load))
        out[least].append(i)
        load[least] += params[i].numel()
    return out


class Optimizer:
    def __init__(self, named: list[tuple[str, nn.Parameter]]):
        muon = lambda name, p: p.ndim >= 2 and name.rsplit(".", 1)[-1] not in NOT_FOR_MUON
        self.muon = [(name, p) for name, p in named if muon(name, p)]
        self.momentum = [torch.zeros_like(p) for _, p in self.muon]
        rest = [p for name, p in named if not muon(name, p)]
        groups = [{"params": [p for p in rest if p.ndim >= 2], "weight_decay": 0.01},
                  {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0}]
        self.adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=ADAM_RATE, betas=ADAM_BETAS, eps=1e-9)

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """One update from the gradients in place, at `scale` times the full learning rates."""
        for group in self.adam.param_groups:
            group["lr"] = ADAM_RATE * scale
        self.adam.step()
        rate = MUON_RATE * scale
        for (name, p), m in zip(self.muon, self.momentum, strict=True):
            m.lerp_(p.grad, 1 - MUON_MOMENTUM)
            update = p.grad.lerp(m, MUON_MOMENTUM)                                     # Nesterov's look ahead
            if "ffn_gate_up" in name:
                update = update.unflatten(-2, (2, -1))
            rows, columns = update.shape[-2:]
            p.mul_(1 - rate * MUON_DECAY)
            p.add_(orthogonal(update).reshape(p.shape), alpha=-rate * max(1, rows / columns) ** 0.5)

    def state(self) -> dict:
        return {"momentum": self.momentum, "adam": self.adam.state_dict()}

    def restore(self, state: dict) -> None:
        self.momentum = state["momentum"]
        self.adam.load_state_dict(state["adam"])
