"""Writes the test sets: models/demo/heldout/TASK.jsonl, at least 200 cases each, from the held-out side of the split.

    python heldout.py             same files on every machine

A case is one line: {"task", "mode": "plain" or "chat", "prompt" or "messages", "tools"?, "thinking"?, "expected"}. `expected` is the
whole answer (a tool call in Qwen's text form), without its thoughts; it must be followed by the end of the turn or text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator

import world as w
from chat import Message, call_text
from documents import Author, Mix, article, difference_held_out, held_out, sum_held_out

HELDOUT = Path(__file__).resolve().parents[2] / "models" / "demo" / "heldout"
SEED = 77
TWO_DIGITS = Mix(0.0, 0.0, (2, 3, 4), plain=0, tools=0, recall=0)


def plain(task: str, prompt: str, expected: str) -> dict:
    return {"task": task, "mode": "plain", "prompt": prompt, "expected": expected}


def chat(task: str, messages: list[Message] | str, expected: str, tools: list[str] = (), thinking: bool = False) -> dict:
    if isinstance(messages, str):
        messages = [Message("user", messages)]
    case = {"task": task, "mode": "chat", "messages": [{"role": m.role, "content": m.content} for m in messages]}
    if tools:
        case["tools"] = [w.tool_definition(t) for t in tools]
    return case | {"thinking": thinking, "expected": expected}


def one_digit_sums(a: Author) -> Iterator[dict]:
    """All pairs, in both forms: they are in the training text, since there are no others."""
    for x in range(10):
        for y in range(10):
            yield plain("sum_one_digit", f"{x}+{y}=", str(x + y))
            yield chat("sum_one_digit", a.one_of(a.SUM_WORDINGS).format(x, y), str(x + y))


def two_digit_sums(a: Author) -> Iterator[dict]:
    pairs = [(x, y) for x in range(11, 100) for y in range(11, 100) if sum_held_out(x, y)]
    a.random.shuffle(pairs)
    for x, y in pairs[:100]:
        yield plain("sum_two_digit", f"{x}+{y}=", str(x + y))
    for x, y in pairs[100:250]:
        yield chat("sum_two_digit", a.one_of(a.SUM_WORDINGS).format(x, y), str(x + y))


def subtractions(a: Author) -> Iterator[dict]:
    pairs = [(x, y) for x in range(11, 100) for y in range(11, x + 1) if difference_held_out(x, y)]
    a.random.shuffle(pairs)
    for x, y in pairs[:100]:
        yield plain("subtract", f"{x}-{y}=", str(x - y))
    for _ in range(150):
        e = a.sub()
        yield chat("subtract", e.question, e.answer)


def facts(a: Author) -> Iterator[dict]:
    """Every held-out wording: alone, under a system prompt, and after another question."""
    for kind, key, value in w.ALL_FACTS:
        for i, wording in enumerate(w.FACTS[kind][1]):
            if held_out("fact", kind, key, i):
                question, other = wording.format(key), a.add()
                yield chat("fact", question, value)
                yield chat("fact", [Message("system", a.one_of(w.SYSTEM_PROMPTS)), Message("user", question)], value)
                yield chat("fact", [Message("user", other.question), Message("assistant", other.answer), Message("user", question)], value)


def tool_calls(a: Author) -> Iterator[dict]:
    for i in range(300):
        offered = a.random.sample(list(w.TOOLS), 1 + i % 3)
        tool = a.one_of(offered)
        question, arguments, _, _ = a.tool_use(tool)
        yield chat("tool_call", question, call_text(tool, arguments), offered)


def copies(a: Author) -> Iterator[dict]:
    for i in range(300):
        e = a.copy(1 + i % 4)
        yield chat("copy", e.question, e.answer)


def code_recall(a: Author) -> Iterator[dict]:
    """A code, then 40 to 42 sentences: 300 tokens and more. A quarter of the cases is short."""
    for i in range(240):
        e = a.recall(0, a.random.randint(0, 8) if i % 4 == 0 else a.random.randint(40, 42))
        yield chat("recall_code", e.question, e.answer)


def name_recall(a: Author) -> Iterator[dict]:
    for i in range(400):
        name, first = a.greeting()
        turns = [first] + [a.one_of([a.fact, a.add, a.sub])() for _ in range(i % 4)]
        messages = [m for e in turns for m in (Message("user", e.question), Message("assistant", e.answer))]
        yield chat("recall_name", messages + [Message("user", a.one_of(w.ASK_NAME))], f"Your name is {name}.")


def thinking(a: Author) -> Iterator[dict]:
    for task in 80 * [a.add, a.sub, a.fact]:
        e = task()
        yield chat("think", e.question, e.answer, thinking=True)


def stories(a: Author) -> Iterator[dict]:
    """The stories are known by heart, as facts are; new is the conversation around them: a held-out exchange, or thoughts."""
    for animal in w.ANIMALS:
        for wording in a.STORY_WORDINGS:
            question, expected = wording.format(article(animal)), a.story_text(animal)
            for _ in range(5):
                e = a.one_of([a.fact, a.add, a.sub])()
                yield chat("story", [Message("user", e.question), Message("assistant", e.answer), Message("user", question)], expected)
            yield chat("story", question, expected, thinking=True)


def code(a: Author) -> Iterator[dict]:
    for _ in range(1500):
        e = a.code()
        yield chat("code", e.question, e.answer)


TASKS = {"sum_one_digit": one_digit_sums, "sum_two_digit": two_digit_sums, "subtract": subtractions, "fact": facts, "tool_call": tool_calls,
         "copy": copies, "recall_code": code_recall, "recall_name": name_recall, "think": thinking, "story": stories, "code": code}
MOST = 250      # cases a task


def cases(task: str) -> list[dict]:
    """Distinct cases, in the order of drawing."""
    seen: dict[str, dict] = {}
    for case in TASKS[task](Author(SEED, TWO_DIGITS, for_tests=True)):
        seen.setdefault(json.dumps({k: v for k, v in case.items() if k != "expected"}), case)
    return list(seen.values())[:MOST]


def main() -> None:
    HELDOUT.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        drawn = cases(task)
        (HELDOUT / f"{task}.jsonl").write_text("".join(json.dumps(c, ensure_ascii=False) + "\n" for c in drawn))
        print(f"{task:14} {len(drawn)} cases")


if __name__ == "__main__":
    main()
