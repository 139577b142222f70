"""Trains the trunk from scratch: learns the tokenizer, then runs the phases below in one schedule of fixed steps.

    python train.py WORK          an hour and a half of two free cores; run again after an interruption to go on

Leaves in WORK: tokenizer.json, trunk.pt, and log.jsonl with the curve. mtp.py goes on from there.

Two single-thread processes each take half of a batch; parameters and gradients lie in shared memory, and a step is three
barriers. Two OpenMP threads in one process are slower, and far slower on a busy machine, since they spin at barriers. On a very
busy one, --processes 1 loses nothing by waiting for the other half. Everything is determined by the seeds and steps here, up to
the rounding of the machine's matrix products.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

import argparse
import json
import time
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor

import tokenizer
from documents import Mix, stream
from network import Network, Rows, Shape
from optimizer import Optimizer, shares
from packing import batches

SHARDS = 2              # of a batch, each with its own stream of documents
ROWS = 3                # of 512 tokens in a shard: 3072 tokens a step
SEED = 20


@dataclass(frozen=True)
class Phase:
    steps: int
    rate: tuple[float, float]   # share of the full learning rates at its first and after its last step, linear between
    balance: float              # weight of the routers' balance loss
    mix: Mix
    restart: bool = False       # with fresh optimizer states


# Small operands and short copies first, then what lags. The load of the experts must be kept even at first, or it runs away;
# later it may drift towards favourites, as in real models.
WIDE = Mix(0.15, 0.17, (2, 3, 4), plain=0.36, tools=0.08, recall=0.01)
FINAL = Mix(0.15, 0.17, (2, 2, 3, 4), plain=0.24, tools=0.15, recall=0.01)
PHASES = {
    "A": Phase(195, (1.0, 1.0), 0.002, Mix(0.45, 0.30, (1, 2, 2, 3), plain=0.38, tools=0.06, recall=0.01)),
    "B": Phase(425, (1.0, 1.0), 0.002, Mix(0.30, 0.20, (2, 2, 3, 4), plain=0.38, tools=0.06, recall=0.01)),
    "C": Phase(390, (1.0, 1.0), 0.002, WIDE),
    "C, slower": Phase(620, (1.0, 0.56), 0.001, WIDE),
    "D": Phase(700, (0.7, 0.0), 0.0006, FINAL, restart=True),
    "E": Phase(70, (0.4, 0.17), 0.0005, replace(FINAL, recall=0.05), restart=True),     # recall over long texts had slipped
    "F": Phase(60, (0.25, 0.0), 0.0005, replace(FINAL, plain=0.18, recall=0.04, tools=0.12, dense=0.18, dense_tasks="code code copy add sub fact",
                                                single=0.24, single_tasks="story story code copy copy add sub fact")),
    "G": Phase(50, (0.15, 0.0), 0.0005, replace(FINAL, plain=0.20, recall=0.03, tools=0.12, dense=0.15, dense_tasks="add add sub sub copy",
                                                single=0.26, single_tasks="add add add sub sub story story copy fact code")),
}
STEPS = sum(p.steps for p in PHASES.values())
WARM_UP, WARM_UP_AGAIN = 40, 15     # steps, of the first phase and of restarts
LOCALITY = 0.002                    # weight of the reward for neighbouring tokens that want the same experts, so that a cache can work
PROMPT_SAMPLE = 0.25    # prompts weigh 0.1 in the loss; a random quarter of their tokens at 0.4 costs the head less
CHECKPOINT = 50         # steps


@dataclass(frozen=True)
class Step:
    number: int         # from 0 over all phases
    rate: float         # share of the full learning rates
    balance: float
    locality: float
    restart: bool       # forget the optimizer's states first


def step_of(phase: Phase, number: int, i: int) -> Step:
    """Step i of a phase."""
    warm = WARM_UP if number == i else WARM_UP_AGAIN if phase.restart else 1
    rate = phase.rate[0] + (phase.rate[1] - phase.rate[0]) * i / phase.steps
    return Step(number, rate * min(1.0, (i + 1) / warm), phase.balance, LOCALITY * min(1.0, number / (0.1 * STEPS)), phase.restart and i == 0)


def router_terms(rows: Rows, s: Shape) -> tuple[Tensor, Tensor, dict]:
    """(balance loss, locality) summed over the layers, and figures for the log."""
    used, n, length = rows.used.reshape(-1), *rows.used.shape
    together = (rows.same[1] & rows.used)[:, 1:].float()                               # token t has a predecessor in its document
    balance, locality, quarter = torch.zeros(()), torch.zeros(()), 0.0
    for probability, chosen in rows.router:
        share = torch.bincount(chosen[used].reshape(-1), minlength=s.n_expert).float()
        share /= share.sum()
        balance = balance + s.n_expert * (share * probability[used].mean(0)).sum()
        p = probability.view(n, length, -1)
        locality = locality + ((p[:, 1:] * p[:, :-1]).sum(-1) * together).sum() / together.sum()
        quarter += share.sort(descending=True).values[:s.n_expert // 4].sum().item()
    layers = len(rows.router)
    return balance, locality, {"balance": balance.item() / layers, "locality": locality.item() / layers, "top_quarter": quarter / layers}


def answer_loss(net: Network, hidden: Tensor, tokens: Tensor, weight: Tensor, start: Tensor, draw: torch.Generator):
    """Cross entropy of the next token, answers at 1 and prompts at 0.1 -> (loss, answers' cross entropy, answers' accuracy)"""
    target_weight = weight[:, 1:].masked_fill(start[:, 1:], 0)                         # nothing predicts a document's first token
    sampled = torch.rand(target_weight.shape, generator=draw) < PROMPT_SAMPLE
    keep = (target_weight > 0.4) | ((target_weight > 0) & sampled)
    kept, target = target_weight[keep], tokens[:, 1:][keep]
    kept = torch.where(kept > 0.4, kept, kept / PROMPT_SAMPLE)
    logits = net.logits(hidden[:, :-1][keep])
    loss = F.cross_entropy(logits, target, reduction="none")
    answer = kept > 0.9
    right = (logits.detach().argmax(-1) == target)[answer].float().mean().item()
    return (loss * kept).sum() / kept.sum(), loss.detach()[answer].mean().item(), right


def schedule(tok, shards_of_mine: range, first: int):
    """(Step, batches of the shards) from step `first` on."""
    number = 0
    for index, phase in enumerate(PHASES.values()):
        if number + phase.steps > first:
            sources = [batches(SEED * 1000 + index * 10 + shard, phase.mix, tok, ROWS) for shard in shards_of_mine]
            for i, parts in enumerate(islice(zip(*sources, strict=True), phase.steps)):
                if number + i >= first:
                    yield step_of(phase, number + i, i), parts
        number += phase.steps


def average_gradients(gradients: list[list[Tensor]], own: list[int], rank: int) -> None:
    """Sums what the processes found into this one's gradients of the parameters it owns, and divides by the number of shards."""
    for i in own:
        for other in gradients[:rank] + gradients[rank + 1:]:
            gradients[rank][i] += other[i]
        gradients[rank][i] /= SHARDS


def save(obj: dict, path: Path) -> None:
    torch.save(obj, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def worker(rank: int, gradients: list[list[Tensor]], barrier, work: Path, net: Network, first: int) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    processes, named = len(gradients), list(net.named_parameters())
    for (_, p), g in zip(named, gradients[rank], strict=True):
        p.grad = g
    own = shares([p for _, p in named], processes)[rank]
    mine = [named[i] for i in own]
    optimizer, kept = Optimizer(mine), work / f"optimizer{rank}of{processes}.pt"
    if kept.exists():
        optimizer.restore(torch.load(kept, weights_only=True))
    log, seen, started = open(work / "log.jsonl", "a"), [], time.time()
    my_shards = range(rank, SHARDS, processes)
    for step, parts in schedule(tokenizer.load(work / "tokenizer.json"), my_shards, first):
        if step.restart:
            optimizer = Optimizer(mine)
        for g in gradients[rank]:
            g.zero_()
        for shard, (tokens, weight, start) in zip(my_shards, parts, strict=True):
            rows = Rows(start, weight > 0)
            hidden = net.hidden(tokens, rows)
            draw = torch.Generator().manual_seed(step.number * SHARDS + shard)
            loss, entropy, right = answer_loss(net, hidden, tokens, weight, start, draw)
            balance, locality, figures = router_terms(rows, net.s)
            (loss + step.balance * balance - step.locality * locality).backward()
            seen.append({"entropy": entropy, "accuracy": right} | figures)
        barrier.wait()
        average_gradients(gradients, own, rank)
        barrier.wait()
        optimizer.step(step.rate)
        barrier.wait()
        done = step.number + 1
        if rank == 0 and done % 10 == 0:
            mean = {k: round(sum(s[k] for s in seen) / len(seen), 4) for k in seen[0]}
            line = {"step": done, "tokens": done * SHARDS * tokens.numel(), "minutes": round((time.time() - started) / 60, 2),
                    "cpu_minutes": round(processes * time.process_time() / 60, 2), "rate": round(step.rate, 3)} | mean
            print(json.dumps(line), file=log, flush=True)
            seen = []
        if done % CHECKPOINT == 0 or done == STEPS:
            save(optimizer.state(), kept)
            barrier.wait()
            if rank == 0:
                save({"step": done, "state": net.state_dict()}, work / "trunk.pt")
            barrier.wait()


def run(target, net: torch.nn.Module, processes: int, *arguments) -> None:
    """Starts target(rank, gradients, barrier, *arguments) in every process, over shared parameters and gradients of net."""
    net.share_memory()
    gradients = [[torch.zeros_like(p).share_memory_() for p in net.parameters()] for _ in range(processes)]
    context = mp.get_context("spawn")
    barrier = context.Barrier(processes)
    workers = [context.Process(target=target, args=(rank, gradients, barrier, *arguments)) for rank in range(processes)]
    for p in workers:
        p.start()
    for p in workers:
        p.join()
    if any(p.exitcode for p in workers):
        raise SystemExit("a training process failed; see its message above")


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("work", type=Path)
    ap.add_argument("--processes", type=int, default=2, choices=[1, 2])
    args = ap.parse_args()
    work = args.work
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "tokenizer.json").exists():
        texts = ("".join(text for text, _ in doc) for doc in islice(stream(SEED, FINAL), 30000))
        tokenizer.learn(texts).save(str(work / "tokenizer.json"))
    torch.manual_seed(SEED)
    net, first = Network(Shape()), 0
    if (work / "trunk.pt").exists():
        saved = torch.load(work / "trunk.pt", weights_only=True)
        net.load_state_dict(saved["state"])
        first = saved["step"]
    print(f"{sum(p.numel() for p in net.parameters()) / 1e6:.2f} M parameters, steps {first} to {STEPS}", flush=True)
    if first < STEPS:
        run(worker, net, args.processes, work, net, first)


if __name__ == "__main__":
    main()
