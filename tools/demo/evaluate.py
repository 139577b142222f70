"""Scores a model on the held-out sets: exact answers that end where they should, greedy.

    python evaluate.py --model ../../models/demo/sluice-demo.gguf --sluice ../../build/release/sluice
    python evaluate.py --model WORK/trunk.pt            by the training code instead, also for GGUF files

With --sluice everything is Sluice's own, from the template in the file to the parsing of thoughts. Without it the network of this folder runs, with the file's weights dequantized. Exits with 1 if a task is below its target.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "TOKENIZERS_PARALLELISM": "false"}

import argparse
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from chat_template import render
from heldout import HELDOUT, TASKS

TARGETS = {"sum_one_digit": 99, "sum_two_digit": 98, "subtract": 95, "fact": 98, "tool_call": 98, "copy": 90, "recall_code": 95,
           "recall_name": 95, "think": 95, "story": 90, "code": 90}   # percent
LIMIT = 160             # tokens of an answer; the longest right one, a story, has about 100


def context(case: dict) -> dict:
    """The template's variables for a chat case."""
    return {"messages": case["messages"], "tools": case.get("tools"), "enable_thinking": case["thinking"], "add_generation_prompt": True}


@dataclass
class Reply:
    text: str
    thoughts: str
    ended: bool     # by an end mark, not by the limit

    def answers(self, case: dict) -> bool:
        return self.ended and self.text == case["expected"] and bool(self.thoughts.strip()) == case.get("thinking", False)


class Sluice:
    """Replies of the real program: one process a case, which renders, tokenizes, runs and parses by itself."""

    def __init__(self, binary: Path, model: Path, options: list[str]):
        self.command = [str(binary), "run", "-m", str(model), "--json", "--temp", "0", "-n", str(LIMIT), *options]

    def replies(self, cases: list[dict]) -> list[Reply]:
        with tempfile.TemporaryDirectory() as folder:
            return [self.reply(case, Path(folder)) for case in cases]

    def reply(self, case: dict, folder: Path) -> Reply:
        def file(name: str, content) -> str:
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
            return str(folder / name)
        if case["mode"] == "plain":
            arguments = ["--no-chat", "-f", file("prompt", case["prompt"])]
        else:
            arguments = ["--messages", file("messages", case["messages"]), "--think" if case["thinking"] else "--no-think"]
            if "tools" in case:
                arguments += ["--tools", file("tools", case["tools"])]
        done = subprocess.run(self.command + arguments, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        out = json.loads(done.stdout)
        return Reply(out["text"], out["reasoning"], out["stop"] == "eos")


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

    def replies(self, cases: list[dict]) -> list[Reply]:
        from tokenizer import STOP
        out = []
        for case, (_, ids) in zip(cases, self.continuations(cases), strict=True):
            text, thoughts = self.tok.decode([t for t in ids if t not in STOP], skip_special_tokens=False), ""
            if case.get("thinking"):
                thoughts, _, text = text.partition("\n</think>\n\n")
            out.append(Reply(text, thoughts, ids[-1] in STOP))
        return out


def score(cases: list[dict], replies: list[Reply], show: int) -> float:
    """Percent of right replies; prints the first wrong ones."""
    wrong = [(c, r) for c, r in zip(cases, replies, strict=True) if not r.answers(c)]
    for case, reply in wrong[:show]:
        asked = case["prompt"] if case["mode"] == "plain" else case["messages"][-1]["content"]
        print(f"    {asked[-70:]!r} -> {reply.text[-90:]!r}, not {case['expected'][-60:]!r}")
    return 100 * (1 - len(wrong) / len(cases))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--model", type=Path, required=True)
    ap.add_argument("--sluice", type=Path, help="the program; without it the training code answers")
    ap.add_argument("--tasks", nargs="*", default=list(TASKS))
    ap.add_argument("--first", type=int, help="only so many cases of each task")
    ap.add_argument("--show", type=int, default=0, help="print so many wrong answers of each task")
    ap.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="the rest of the line is for the program, e.g. --options -t 1")
    args = ap.parse_args()
    backend = Sluice(args.sluice, args.model, args.options) if args.sluice else Torch(args.model)
    print("| task | cases | exact | target |\n|---|---|---|---|")
    low = False
    for task in args.tasks:
        cases = [json.loads(line) for line in (HELDOUT / f"{task}.jsonl").read_text().splitlines()][:args.first]
        percent = score(cases, backend.replies(cases), args.show)
        low |= percent < TARGETS[task]
        print(f"| {task} | {len(cases)} | {percent:.1f} | {TARGETS[task]} |", flush=True)
    raise SystemExit(low)


if __name__ == "__main__":
    main()
