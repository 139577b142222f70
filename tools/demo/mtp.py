"""The draft head (multi-token prediction): one attention block that guesses the token after the next, and chained, three.

    python mtp.py WORK            trains it on the frozen trunk of WORK/trunk.pt and leaves WORK/mtp.pt, which holds both; run again
                                  when the trunk has changed a little, it goes on from the head that is there, with fewer steps

Row p of the head reads the trunk's state after output_norm at p and token p + 1, stands at position p, and predicts token p + 2:

    x = eh_proj [norm(embedding, enorm) ; norm(state, hnorm)];   y = block(x);   g = norm(y, shared_head_norm);   logits = output g

Deeper drafts put g in the place of the state and the drafted token in the place of the known one, one position further on. Training
unrolls that three deep at every row at once: the chain of row p sees the first-depth keys of rows up to p and its own deeper ones,
as it will when an engine drafts. What it learns is the trunk's own greedy choice, since that is what accepts a draft.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import argparse
import json
import time
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tokenizer
from documents import EVEN_MIX
from network import Block, Network, Rows, Shape, matrix, rms_norm
from optimizer import Optimizer, shares
from packing import batches
from train import SHARDS, average_gradients, run

DEPTH = 3
DEPTH_WEIGHTS = (1.0, 0.7, 0.5)     # in the loss; a deep draft only counts when those before it were right
ROWS = 2                            # of 512 tokens in a shard: 2048 tokens a step
STEPS, STEPS_AGAIN = 220, 120
WARM_UP, CONSTANT_UNTIL = 20, 0.4   # steps; share of the steps, from there linearly to zero
BALANCE = 0.001
SEED = 40


class DraftHead(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.enorm = nn.Parameter(torch.ones(s.n_embd))
        self.hnorm = nn.Parameter(torch.ones(s.n_embd))
        self.eh_proj = matrix(s.n_embd, 2 * s.n_embd)
        self.shared_head_norm = nn.Parameter(torch.ones(s.n_embd))
        self.block = Block(s, recurrent=False)

    def inputs(self, known: Tensor, state: Tensor) -> Tensor:
        eps = self.s.eps
        return F.linear(torch.cat([rms_norm(known, self.enorm, eps), rms_norm(state, self.hnorm, eps)], -1), self.eh_proj)

    def unroll(self, embedding: Tensor, state: Tensor, tokens: Tensor, rows: Rows, chains: Tensor) -> list[Tensor]:
        """state [B, T, d] of the trunk; chains [B, T] marks the rows p to draft from, n in all.
        -> for each depth the states g [n, d], whose logits predict token p + 2 + depth.

        All rows give keys and values of depth one; only the marked ones are carried further.
        """
        s, b = self.s, self.block
        x = self.inputs(embedding[tokens.roll(-1, 1)], state)
        keys, values = b.mixer.keys(rms_norm(x, b.attn_norm, s.eps), rows.position)    # [B, T, G, D]
        x, position, own, out = x[chains], rows.position[chains], [], []
        for depth in range(DEPTH):
            if depth:
                x = self.inputs(embedding[tokens.roll(-1 - depth, 1)[chains]], out[-1])
            h = rms_norm(x, b.attn_norm, s.eps)
            if depth:
                own.append(b.mixer.keys(h, position + depth))
            x = x + self.attention(h, position + depth, keys, values, rows.visible, chains, own)
            x = x + b.ffn(rms_norm(x, b.post_attention_norm, s.eps), rows)
            out.append(rms_norm(x, self.shared_head_norm, s.eps))
        return out

    def attention(self, h, position, keys, values, visible, chains, own: list) -> Tensor:
        """h [n, d] of the chains. own: keys and values [n, G, D] of their rows of depth two and more, each for its chain alone."""
        a = self.block.mixer
        q, gate = a.queries(h, position)
        q = a.by_group(q[None])[0]                                                     # [G, H/G, n, D]
        out, lo = [], 0
        for row, n in enumerate(chains.sum(1).tolist()):
            mine = slice(lo, lo + n)
            score = q[:, :, mine] @ keys[row].permute(1, 2, 0)[:, None]                # [G, H/G, n, T]
            score = score.masked_fill(~visible[row][chains[row]], -torch.inf)
            deeper = [(q[:, :, mine] * k[mine].transpose(0, 1)[:, None]).sum(-1, keepdim=True) for k, _ in own]
            p = torch.cat([score, *deeper], -1).softmax(-1)
            length = score.shape[-1]
            mixed = p[..., :length] @ values[row].transpose(0, 1)[:, None]
            for j, (_, v) in enumerate(own):
                mixed = mixed + p[..., length + j, None] * v[mine].transpose(0, 1)[:, None]
            out.append(mixed)
            lo += n
        return F.linear(torch.cat(out, 2).permute(2, 0, 1, 3).flatten(1) * gate, a.attn_output)

    def named_for_file(self) -> dict[str, Tensor]:
        """Parameters by the names that export.py expects, as block n_layer."""
        prefix = f"blk.{self.s.n_layer}."
        return {prefix + (name.removeprefix("block.") if name.startswith("block.") else "nextn." + name): value
                for name, value in self.state_dict().items()}

    def load_from_file(self, state: dict[str, Tensor]) -> None:
        self.load_state_dict({mine: state[theirs] for mine, theirs in zip(self.state_dict(), self.named_for_file(), strict=True)})


def follows(marked: Tensor, rows: Rows, ahead: int) -> Tensor:
    """[B, T]: whether token t + ahead is marked and in the document of token t."""
    out = torch.zeros_like(marked)
    out[:, :-ahead] = marked[:, ahead:] & (rows.document[:, ahead:] == rows.document[:, :-ahead])
    return out


def worker(rank: int, gradients: list[list[Tensor]], barrier, work: Path, net: Network, head: DraftHead,
           seed: int, steps: int) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    processes, named = len(gradients), list(head.named_parameters())
    for (_, p), g in zip(named, gradients[rank], strict=True):
        p.grad = g
    own = shares([p for _, p in named], processes)[rank]
    optimizer, log, started = Optimizer([named[i] for i in own]), open(work / "mtp.jsonl", "a"), time.time()
    tok = tokenizer.load(work / "tokenizer.json")
    sources = [batches(seed * 1000 + shard, EVEN_MIX, tok, ROWS) for shard in range(rank, SHARDS, processes)]
    right, total = [0] * DEPTH, [0] * DEPTH
    for step, parts in enumerate(islice(zip(*sources, strict=True), steps)):
        for g in gradients[rank]:
            g.zero_()
        for tokens, weight, start in parts:
            rows = Rows(start, weight > 0)
            answer = (weight > 0.9) & ~start
            with torch.no_grad():
                state = net.hidden(tokens, rows)
                choice = tokens.clone()                                                # the trunk's own, where answers are
                choice[answer] = net.logits(state[answer.roll(-1, 1)]).argmax(-1)      # token t + 1 is chosen at t
            rows.router.clear()
            chains, loss = follows(answer, rows, 2), torch.zeros(())
            for depth, g in enumerate(head.unroll(net.token_embd, state, tokens, rows, chains)):
                keep = follows(answer, rows, 2 + depth)[chains]
                target = choice.roll(-2 - depth, 1)[chains][keep]
                logits = net.logits(g[keep])
                loss = loss + DEPTH_WEIGHTS[depth] * F.cross_entropy(logits, target)
                right[depth] += int((logits.argmax(-1) == target).sum())
                total[depth] += len(target)
            (loss + BALANCE * balance(rows, net.s)).backward()
        barrier.wait()
        average_gradients(gradients, own, rank)
        barrier.wait()
        optimizer.step(min(1.0, (step + 1) / WARM_UP, (1 - step / steps) / (1 - CONSTANT_UNTIL)))
        barrier.wait()
        if rank == 0 and (step + 1) % 20 == 0:
            line = {"step": step + 1, "minutes": round((time.time() - started) / 60, 2), "loss": round(loss.item(), 4),
                    "accuracy_by_depth": [round(r / t, 4) for r, t in zip(right, total)]}
            print(json.dumps(line), file=log, flush=True)
            right, total = [0] * DEPTH, [0] * DEPTH


def balance(rows: Rows, s: Shape) -> Tensor:
    """Balance loss of the head's experts over the rows that were carried."""
    out = torch.zeros(())
    for probability, chosen in rows.router:
        share = torch.bincount(chosen.reshape(-1), minlength=s.n_expert) / chosen.numel()
        out = out + s.n_expert * (share * probability.mean(0)).sum()
    return out


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("work", type=Path)
    ap.add_argument("--processes", type=int, default=2, choices=[1, 2])
    args = ap.parse_args()
    work = args.work
    saved = torch.load(work / "trunk.pt", weights_only=True)
    net = Network(Shape()).requires_grad_(False)
    net.load_state_dict(saved["state"])
    net.share_memory()
    torch.manual_seed(SEED)
    head, again = DraftHead(net.s), (work / "mtp.pt").exists()
    if again:
        head.load_from_file(torch.load(work / "mtp.pt", weights_only=True)["state"])
    seed, steps = (SEED + 1, STEPS_AGAIN) if again else (SEED, STEPS)
    print(f"{sum(p.numel() for p in head.parameters()) / 1e6:.2f} M parameters, {steps} steps", flush=True)
    run(worker, head, args.processes, work, net, head, seed, steps)
    torch.save({"step": saved["step"], "state": saved["state"] | head.named_for_file()}, work / "mtp.pt")


if __name__ == "__main__":
    main()
