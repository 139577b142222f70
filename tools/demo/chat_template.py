"""Renders models/demo/chat_template.jinja as Hugging Face's apply_chat_template does: the reference for Sluice's own engine."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = Path(__file__).resolve().parents[2] / "models" / "demo" / "chat_template.jinja"


def fail(message: str):
    raise TemplateError(message)


@cache
def compiled(text: str):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    env.globals["raise_exception"] = fail
    return env.from_string(text)


def render(context: dict, template: str | None = None) -> str:
    return compiled(TEMPLATE.read_text() if template is None else template).render(**context)
