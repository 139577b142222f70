"""Conversations as text: a plain Python twin of models/demo/chat_template.jinja that also says which text is to be learnt.

Jinja is too slow for millions of tokens and cannot mark spans. test_demo.py checks the two against each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

PROMPT, ANSWER = 0.1, 1.0      # weight in the loss of what is given and of what is to be answered
Span = tuple[str, float]


@dataclass
class Message:
    role: str                                   # system, user, assistant or tool
    content: str = ""
    thought: str = ""                           # reasoning of an assistant's turn, shown only after the last question
    calls: list[tuple[str, dict]] = field(default_factory=list)   # (tool, arguments)

    def for_template(self) -> dict:
        out: dict = {"role": self.role, "content": self.content}
        if self.role == "assistant":
            out["reasoning_content"] = self.thought
        if self.calls:
            out["tool_calls"] = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in self.calls]
        return out


def call_text(tool: str, arguments: dict) -> str:
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={tool}>\n{parameters}</function>\n</tool_call>"


def answer_text(m: Message) -> str:
    return m.content + ("\n\n" if m.content and m.calls else "") + "\n".join(call_text(*c) for c in m.calls)


def spans(messages: list[Message], tools: list[dict] | None = None) -> list[Span]:
    """The whole conversation. Assistant turns after the last user turn carry a think block, as in Qwen3.5's template."""
    out: list[Span] = []
    body = messages
    system = messages[0].content if messages[0].role == "system" else ""
    if tools:
        head = "# Tools\n\nYou have access to the following functions:\n\n<tools>" + "".join("\n" + json.dumps(t, ensure_ascii=False) for t in tools)
        system = head + "\n</tools>" + ("\n\n" + system if system else "")
    if system:
        out.append((f"<|im_start|>system\n{system}<|im_end|>\n", PROMPT))
    if messages[0].role == "system":
        body = messages[1:]
    last_question = max(i for i, m in enumerate(body) if m.role == "user")
    for i, m in enumerate(body):
        if m.role == "user":
            out.append((f"<|im_start|>user\n{m.content}<|im_end|>\n", PROMPT))
        elif m.role == "tool":      # results in a row share one user turn
            first, last = body[i - 1].role != "tool", i + 1 == len(body) or body[i + 1].role != "tool"
            out.append((("<|im_start|>user" if first else "") + f"\n<tool_response>\n{m.content}\n</tool_response>"
                        + ("<|im_end|>\n" if last else ""), PROMPT))
        else:
            out.append(("<|im_start|>assistant\n", PROMPT))
            if i > last_question:
                out += [("<think>\n", PROMPT), (m.thought + "\n</think>\n\n", ANSWER if m.thought else PROMPT)]
            out += [(answer_text(m) + "<|im_end|>", ANSWER), ("\n", PROMPT)]
    return out
