#!/usr/bin/env python3
"""Print a text of the demo model's held-out cases, for `sluice trace` to record the routing of.  Standard library only.

  mixed   cases of all tasks in random order
  tasks   some cases of one task, then of the next
  story   stories only

Example, as the traces in tests/data/traces were made
  make_trace_texts.py tasks > tasks.txt
  sluice trace -m models/demo/sluice-demo.gguf -f tasks.txt --form binary -o demo-tasks.trace
"""
import argparse
import json
import pathlib
import random
import sys

HELD_OUT = pathlib.Path(__file__).resolve().parent.parent / "models/demo/heldout"
LENGTHS = {"mixed": 10000, "tasks": 700, "story": 7000}  # characters after which no case is begun; of each task
TRIVIAL = "sum_one_digit"  # left out of `tasks`


def text_of(case):
    """A case with its answer, as the model's chat template writes it without its system message."""
    if case["mode"] == "plain":
        return f"{case['prompt']}{case['expected']}\n"
    messages = [m for m in case["messages"] if isinstance(m.get("content"), str)]
    answer = case["expected"] if isinstance(case["expected"], str) else json.dumps(case["expected"])
    messages.append({"role": "assistant", "content": answer})
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)


def first(texts, length):
    """The texts until they are longer than so many characters."""
    out = ""
    for text in texts:
        if len(out) > length:
            break
        out += text
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=LENGTHS)
    args = parser.parse_args()
    tasks = {}
    for path in sorted(HELD_OUT.glob("*.jsonl")):
        tasks[path.stem] = [text_of(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    length = LENGTHS[args.kind]
    if args.kind == "tasks":
        text = "".join(first(texts, length) for name, texts in tasks.items() if name != TRIVIAL)
    elif args.kind == "story":
        text = first(tasks["story"], length)
    else:
        cases = [case for texts in tasks.values() for case in texts]
        random.Random(1).shuffle(cases)
        text = first(cases, length)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
