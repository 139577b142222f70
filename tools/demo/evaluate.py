"""Scores a model on the held-out sets: exact answers that end where they should, greedy.

    python evaluate.py --model ../../models/demo/sluice-demo.gguf --sluice ../../build/release/sluice
    python evaluate.py --model WORK/trunk.pt            by the training code instead, also for GGUF files

With --sluice everything is Sluice's own: its template engine renders the conversations, its tokenizer and kernels answer. Without
it the network of this folder runs, with the file's weights dequantized. Exits with 1 if a task is below its target.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "TOKENIZERS_PARALLELISM": "false"}

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Callable

from chat_template import TEMPLATE, render
from heldout import HELDOUT, TASKS

TARGETS = {"sum_one_digit": 99, "sum_two_digit": 98, "subtract": 95, "fact": 98, "tool_call": 98, "copy": 90, "recall_code": 95,
           "recall_name": 95, "think": 95, "story": 0, "code": 0}     # percent; stories and code only have to be written
LIMIT = 160             # tokens of an answer; the longest right one, a story, has about 100


def context(case: dict) -> dict:
    """The template's variables for a chat case."""
    return {"messages": case["messages"], "tools": case.get("tools"), "enable_thinking": case["thinking"], "add_generation_prompt": True}


def is_right(case: dict, text: str, ended: bool) -> bool:
    if case.get("thinking"):
        thoughts, mark, text = text.partition("\n</think>\n\n")
        if not mark or not thoughts.strip():
            return False
    return ended and text == case["expected"]


class Sluice:
    """Answers of the real program, one process a case."""

    def __init__(self, binary: Path, model: Path):
        self.binary, self.model = str(binary), str(model)

    def prompts(self, cases: list[dict]) -> list[str]:
        template = TEMPLATE.read_text()
        lines = [json.dumps({"template": template, "context": context(c)}) for c in cases if c["mode"] == "chat"]
        done = subprocess.run([self.binary, "template", "--jsonl"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
        rendered = iter(json.loads(line)["text"] for line in done.stdout.splitlines())
        return [next(rendered) if c["mode"] == "chat" else c["prompt"] for c in cases]

    def answers(self, cases: list[dict]) -> list[tuple[str, bool]]:
        out = []
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            for prompt in self.prompts(cases):
                Path(file.name).write_text(prompt)
                done = subprocess.run([self.binary, "run", "-m", self.model, "-f", file.name, "--no-chat", "--json", "--temp", "0", "-n",
                                       str(LIMIT)], capture_output=True, text=True, check=True)
                reply = json.loads(done.stdout)
                out.append((reply["text"], reply["stop"] == "eos"))
        return out


class Torch:
    """Answers of the training code, all cases of a task in lock-step."""

    def __init__(self, model: Path):
        import torch

        import export
        import tokenizer
        from network import Network, Shape
        torch.set_flush_denormal(True)
        self.net = Network(Shape())
        wanted = self.net.state_dict()
        if model.suffix == ".gguf":
            state = export.state_of(export.read_tensors(model), wanted)
        else:
            state = {k: v for k, v in torch.load(model, weights_only=True)["state"].items() if k in wanted}
        self.net.load_state_dict(state)
        self.net.requires_grad_(False)
        self.tok = tokenizer.load(model if model.suffix == ".gguf" else model.with_name("tokenizer.json"))

    def prompts(self, cases: list[dict]) -> list[list[int]]:
        from tokenizer import encode
        return [encode(self.tok, render(context(c)) if c["mode"] == "chat" else c["prompt"]) for c in cases]

    def continuations(self, cases: list[dict]) -> list[tuple[list[int], list[int]]]:
        """(prompt, answer) ids; long and short prompts apart, since a batch steps from its first token to its last."""
        from network import generate
        from tokenizer import STOP
        prompts = self.prompts(cases)
        order = sorted(range(len(cases)), key=lambda i: len(prompts[i]))
        out: list = [None] * len(cases)
        for lo in range(0, len(order), 64):
            some = order[lo:lo + 64]
            for i, answer in zip(some, generate(self.net, [prompts[i] for i in some], LIMIT, STOP), strict=True):
                out[i] = (prompts[i], answer)
        return out

    def answers(self, cases: list[dict]) -> list[tuple[str, bool]]:
        from tokenizer import STOP
        decode = lambda ids: self.tok.decode(ids, skip_special_tokens=False)
        return [(decode([t for t in a if t not in STOP]), a[-1] in STOP) for _, a in self.continuations(cases)]


def score(task: str, cases: list[dict], answers: Callable[[list[dict]], list[tuple[str, bool]]], show: int) -> float:
    right = 0
    for case, (text, ended) in zip(cases, answers(cases), strict=True):
        good = is_right(case, text, ended)
        right += good
        if not good and show > 0:
            show -= 1
            asked = case["prompt"] if case["mode"] == "plain" else case["messages"][-1]["content"]
            print(f"    {asked[-70:]!r} -> {text[-90:]!r}, not {case['expected'][-60:]!r}")
    return 100 * right / len(cases)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--model", type=Path, required=True)
    ap.add_argument("--sluice", type=Path, help="the program; without it the training code answers")
    ap.add_argument("--tasks", nargs="*", default=list(TASKS))
    ap.add_argument("--first", type=int, help="only so many cases of each task")
    ap.add_argument("--show", type=int, default=0, help="print so many wrong answers of each task")
    args = ap.parse_args()
    backend = Sluice(args.sluice, args.model) if args.sluice else Torch(args.model)
    print("| task | cases | exact | target |\n|---|---|---|---|")
    low = False
    for task in args.tasks:
        cases = [json.loads(line) for line in (HELDOUT / f"{task}.jsonl").read_text().splitlines()][:args.first]
        percent = score(task, cases, backend.answers, args.show)
        low |= percent < TARGETS[task]
        print(f"| {task} | {len(cases)} | {percent:.1f} | {TARGETS[task] or '-'} |", flush=True)
    raise SystemExit(low)


if __name__ == "__main__":
    main()
