"""pytest tools/demo: the split keeps its word, and both ways of writing a conversation agree."""

from __future__ import annotations

import json
import re

import pytest

import world as w
from chat import Message, spans
from chat_template import TEMPLATE, render
from documents import Author, difference_held_out, held_out, sum_held_out
from heldout import HELDOUT, TASKS, cases


def texts(draws: int) -> list[str]:
    author = Author(1)
    return ["".join(text for text, _ in doc) for _ in range(draws) for doc in author.documents()]


@pytest.fixture(scope="module")
def training_text() -> str:
    return "\n".join(texts(20000))


def test_no_held_out_sum_or_difference_is_ever_written(training_text):
    sums = {(int(a), int(b)) for a, b in re.findall(r"(?<![\d+])(\d+) ?(?:\+|plus) ?(\d+)(?!\d)", training_text)}
    sums |= {(int(a), int(b)) for a, b in re.findall(r"(?:add|Add) (\d+) and (\d+)", training_text)}
    assert len(sums) > 4000 and not {pair for pair in sums if sum_held_out(*pair)}
    differences = {(int(a), int(b)) for a, b in re.findall(r"(?<![\d-])(\d+) ?(?:-|minus) ?(\d+)(?!\d)", training_text)}
    assert len(differences) > 2500 and not {pair for pair in differences if difference_held_out(*pair)}


def test_no_held_out_fact_wording_is_ever_written(training_text):
    items = [(kind, key, i) for kind, key, _ in w.ALL_FACTS for i in range(len(w.FACTS[kind][1]))]
    wording = lambda kind, key, i: w.FACTS[kind][1][i].format(key)
    kept = {wording(*item) for item in items if not held_out("fact", *item)}
    back = {wording(*item) for item in items if held_out("fact", *item)} - kept
    asked = set(re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", training_text))
    assert len(kept & asked) > 500 and not back & asked


def test_every_tool_and_every_fact_has_both_sides():
    author = Author(3, for_tests=True)
    for tool in w.TOOLS:
        assert held_out("tool", author.tool_use(tool)[0])
    for kind, key, _ in w.ALL_FACTS:
        assert any(not held_out("fact", kind, key, i) for i in range(len(w.FACTS[kind][1])))


def test_no_case_of_the_test_sets_is_a_training_document(training_text):
    from evaluate import context
    for task in TASKS:
        if task == "sum_one_digit":
            continue
        for case in cases(task):
            prompt = case["prompt"] if case["mode"] == "plain" else render(context(case))
            whole = prompt + case["expected"] + ("<|endoftext|>" if case["mode"] == "plain" else "<|im_end|>")
            assert not training_text.startswith(whole) and "\n" + whole not in training_text, (task, whole)


@pytest.mark.parametrize("task", TASKS)
def test_committed_test_sets_are_what_the_generator_writes(task):
    drawn = cases(task)
    assert len(drawn) >= 200
    assert [json.loads(line) for line in (HELDOUT / f"{task}.jsonl").read_text().splitlines()] == drawn


def template_text(messages: list[Message], tools=None) -> str:
    return render({"messages": [m.for_template() for m in messages], "tools": tools})


CONVERSATIONS = {
    "one turn": ([Message("user", "1+1="), Message("assistant", "2")], None),
    "system": ([Message("system", "Answer briefly."), Message("user", "Hi"), Message("assistant", "Hello!", "A greeting.")], None),
    "turns": ([Message("user", "a"), Message("assistant", "b", "lost"), Message("user", "c"), Message("assistant", "d", "kept")], None),
    "tools": ([Message("user", "Turn on the light in the office."), Message("assistant", "", "I call set_light.", [("set_light", {"room": "office", "on": True})]),
               Message("tool", "ok"), Message("assistant", "Done.")], ["set_light", "add"]),
    "two calls": ([Message("system", "s"), Message("user", "q"), Message("assistant", "Both.", "", [("add", {"a": 1, "b": 2}), ("get_time", {"city": "Rome"})]),
                   Message("tool", "3"), Message("tool", "12:00"), Message("assistant", "x"), Message("user", "y"), Message("assistant", "z")],
                  ["add", "get_time"]),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_chat_py_writes_what_the_template_renders(name):
    messages, tools = CONVERSATIONS[name]
    definitions = [w.tool_definition(t) for t in tools] if tools else None
    assert "".join(text for text, _ in spans(messages, definitions)) == template_text(messages, definitions)
