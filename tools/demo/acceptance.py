"""How often the draft head's guesses are what the trunk then chooses, task by task, on greedy answers to the held-out sets.

    python acceptance.py --model WORK/mtp.pt [--first 24]

`first draft` counts every answer token after the first; `tokens a round` is what a round of up to three chained drafts yields,
the trunk's own token included (four at most; short answers end rounds early).
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}     # before torch: its threads spin on a busy machine

import argparse
import json
from pathlib import Path

import torch

import export
from evaluate import Torch
from heldout import HELDOUT, TASKS
from mtp import DEPTH, DraftHead
from network import Rows


def load_head(model: Path, net) -> DraftHead:
    head = DraftHead(net.s)
    wanted = head.named_for_file()
    if model.suffix == ".gguf":
        head.load_from_file(export.state_of(export.read_tensors(model), wanted))
    else:
        head.load_from_file(torch.load(model, weights_only=True)["state"])
    return head


@torch.no_grad()
def drafts(net, head: DraftHead, prompt: list[int], answer: list[int]) -> list[list[int]]:
    """For each answer token that has a successor: the DEPTH drafts made once it is known."""
    ids = prompt + answer
    length = -(-(len(ids) + DEPTH) // 64) * 64
    tokens = torch.zeros(1, length, dtype=torch.long)
    tokens[0, :len(ids)] = torch.tensor(ids)
    start = torch.zeros(1, length, dtype=torch.bool)
    start[0, 0] = True
    rows = Rows(start, torch.ones(1, length))
    state = net.hidden(tokens, rows)
    rows.router.clear()
    chains = torch.zeros_like(start)
    chains[0, len(prompt) - 1:len(ids) - 2] = True                                     # row n - 1 drafts token n + 1 from known token n
    guesses = [net.logits(g).argmax(-1).tolist() for g in head.unroll(net.token_embd, state, tokens, rows, chains)]
    return [list(chain) for chain in zip(*guesses, strict=True)]


def measure(net, head: DraftHead, pairs) -> tuple[int, int, int, int]:
    """(drafts at depth one, accepted ones, rounds, tokens of the rounds)"""
    tried = accepted = rounds = gained = 0
    for prompt, answer in pairs:
        if len(answer) < 2:
            continue
        chains = drafts(net, head, prompt, answer)
        matches = [[g == t for g, t in zip(chain, answer[n + 1:])] for n, chain in enumerate(chains)]
        tried += len(matches)
        accepted += sum(m[0] for m in matches)
        n = 0
        while n < len(matches):
            right = next((i for i, good in enumerate(matches[n]) if not good), len(matches[n]))
            rounds, gained, n = rounds + 1, gained + min(right + 1, len(answer) - 1 - n), n + right + 1
    return tried, accepted, rounds, gained


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--model", type=Path, required=True)
    ap.add_argument("--first", type=int, default=24, help="cases of each task")
    args = ap.parse_args()
    backend = Torch(args.model)
    head = load_head(args.model, backend.net)
    print("| task | first draft accepted | tokens a round of three |\n|---|---|---|")
    shares, total = [], [0, 0]
    for task in TASKS:
        cases = [json.loads(line) for line in (HELDOUT / f"{task}.jsonl").read_text().splitlines()][:args.first]
        tried, accepted, rounds, gained = measure(backend.net, head, backend.continuations(cases))
        shares.append(accepted / tried)
        total = [total[0] + tried, total[1] + accepted]
        print(f"| {task} | {100 * shares[-1]:.1f} % | {gained / rounds:.2f} |", flush=True)
    print(f"mean over the tasks {100 * sum(shares) / len(shares):.1f} %, over all tokens {100 * total[1] / total[0]:.1f} %")


if __name__ == "__main__":
    main()
