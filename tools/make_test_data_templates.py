#!/usr/bin/env python3
"""Cuts tests/data/templates/ out of the full reference set of Jinja vectors.

    python tools/make_test_data_templates.py --reference "$SLUICE_REFERENCE/templates" --out tests/data/templates

Keeps a share of the language cases and a dozen real chat templates (openly licensed, their sources in
real/index.json) with some conversations each. Standard library only.
"""
import argparse
import json
import pathlib
import shutil

TEMPLATES = [
    "Qwen-Qwen3.6-35B-A3B", "Qwen-Qwen3.5-0.8B", "Qwen3.8-27B", "Qwen-Qwen3-0.6B", "Qwen-Qwen3-Coder-Next", "Qwen-Qwen2.5-7B-Instruct",
    "openai-gpt-oss-120b", "GLM-4.7-Flash", "HuggingFaceTB-SmolLM3-3B", "mistralai-Mistral-7B-Instruct-v0.3", "ibm-granite-granite-4.0",
    "microsoft-phi-4", "deepseek-ai-DeepSeek-V3.1",
]
QWEN = 3  # the first ones keep all their conversations
EVERY_LANGUAGE_CASE = 2
EVERY_RANDOM_CASE = 8
EVERY_CONVERSATION = 4


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def write(path, rows):
    path.write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    (args.out / "real").mkdir(parents=True, exist_ok=True)

    cases = read(args.reference / "jinja.json")[::EVERY_LANGUAGE_CASE]
    cases += read(args.reference / "jinja-fuzz.json")[::EVERY_RANDOM_CASE]
    cases += read(args.reference / "jinja-options.json")
    write(args.out / "jinja.json", cases)

    index = [e for e in read(args.reference / "real" / "index.json") if e["file"][: -len(".jinja")] in TEMPLATES]
    assert len(index) == len(TEMPLATES)
    write(args.out / "real" / "index.json", index)
    real = []
    for place, name in enumerate(TEMPLATES):
        shutil.copy(args.reference / "real" / f"{name}.jinja", args.out / "real" / f"{name}.jinja")
        rows = [r for r in read(args.reference / "real.json") if r["template_file"] == f"real/{name}.jinja"]
        real += rows if place < QWEN else rows[place % EVERY_CONVERSATION :: EVERY_CONVERSATION]
    write(args.out / "real.json", real)
    used = {r["conversation"] for r in real}
    write(args.out / "conversations.json", [c for c in read(args.reference / "conversations.json") if c["name"] in used])
