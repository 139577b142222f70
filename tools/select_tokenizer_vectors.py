#!/usr/bin/env python3
"""Writes tests/data/tokenizers: a selection of the golden vectors of tokenizers, each with the part of the vocabulary
that it needs, so that a fresh clone tests every tokenizer without the full vocabularies.

    pip install gguf==0.19.0
    python3 tools/select_tokenizer_vectors.py --reference $SLUICE_REFERENCE/tokenizers --out tests/data/tokenizers

Reads NAME.json (vectors made with Hugging Face tokenizers 0.22.1 and SentencePiece 0.2.3) and its NAME-vocab.gguf. The
ids stay those of the full vocabulary. A part gives the same ids as the whole for a text if it has every token whose
text stands anywhere in that text, and every merge whose result does: no other could ever apply.
"""
import argparse
import json
import pathlib

import gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SETS = [
    # vectors, vocabulary, how many bytes of text, of invalid cases, of decode cases
    ("qwen35", "qwen35", 6500, 60, 120),
    ("qwen35-with-pre-qwen2", "qwen35", 1500, 0, 0),
    ("smollm2", "smollm2", 3500, 16, 60),
    ("llama-bpe", "llama-bpe", 3000, 16, 60),
    ("mistral-spm", "mistral-spm", 3500, 0, 60),
]
SPACE_MARK = "\u2581"


def byte_alphabet():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + n) for n, b in enumerate(rest)}}


ALPHABET = byte_alphabet()


def pick(cases, budget, size):
    """Cases spread over the list, round after round, until `budget` of `size` is used; the order is kept."""
    chosen = set()
    step = max(1, len(cases) // 16)
    for offset in range(step):
        for k in range(offset, len(cases), step):
            cost = size(cases[k])
            if k not in chosen and cost <= budget and cost < 240:
                chosen.add(k)
                budget -= cost
    return [cases[k] for k in sorted(chosen)]


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        read = lambda key: fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else None
        self.model, self.pre = read("model"), read("pre")
        self.tokens, self.types = read("tokens"), read("token_type")
        self.scores, self.merges = read("scores"), read("merges") or []
        self.ids = {key: read(f"{key}_token_id") for key in ("bos", "eos", "unknown")}

    def stored(self, text):
        if self.model == "llama":
            return SPACE_MARK + text.replace(" ", SPACE_MARK)
        return "".join(ALPHABET[b] for b in text.encode())

    def part(self, texts, extra_ids):
        """What the encoding of `texts` and the decoding of `extra_ids` can touch."""
        longest = max(map(len, self.tokens))
        seen = set()
        for text in map(self.stored, texts):
            for a in range(len(text)):
                seen.update(text[a:b] for b in range(a + 1, min(len(text), a + longest) + 1))
        alone = set(ALPHABET.values()) if self.model == "gpt2" else set()
        special = [i for i, t in enumerate(self.types) if t in (UNKNOWN, CONTROL, USER_DEFINED)][:40]
        rows = []
        for i, (token, kind) in enumerate(zip(self.tokens, self.types)):
            known = token in seen or token in alone or kind == BYTE or i in extra_ids or i in special
            if known and kind != UNUSED:
                row = [i, token]
                if kind != NORMAL or self.scores:
                    row.append(kind)
                if self.scores:
                    row.append(self.scores[i])
                rows.append(row)
        merges = [m for m in self.merges if m.replace(" ", "") in seen]
        out = {"model": self.model, "pre": self.pre, "size": len(self.tokens)}
        out.update({key: value for key, value in self.ids.items() if value is not None})
        return {**out, "tokens": rows, "merges": merges}


def lines(items):
    return "[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in items) + "\n]"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, vocabulary, text_bytes, n_invalid, n_decode in SETS:
        full = json.loads((args.reference / f"{name}.json").read_text(encoding="utf-8"))
        encode = pick(full["encode"], text_bytes, lambda c: len(c["text"].encode()))
        invalid = pick(full["invalid_utf8"], n_invalid, lambda c: 1)
        decode = pick(full["decode"], n_decode, lambda c: 1)
        for case in encode + invalid + decode:
            for key in [k for k in case if k in ("ids_nfc", "group") or k.startswith(("llamacpp", "tiktoken"))]:
                del case[key]
        texts = [c["text"] for c in encode] + [c["replaced_text"] for c in invalid]
        vocab = Vocabulary(args.reference / f"{vocabulary}-vocab.gguf").part(texts, {i for c in decode for i in c["ids"]})
        origin = f"selection of {name}.json by tools/select_tokenizer_vectors.py"
        head = json.dumps({k: v for k, v in vocab.items() if k not in ("tokens", "merges")})[:-1]
        merges = json.dumps(vocab["merges"], ensure_ascii=False, separators=(",", ":"))
        path = args.out / f"{name}.json"
        path.write_text(
            f'{{"origin": {json.dumps(origin)},\n"vocabulary": {head}, "tokens": {lines(vocab["tokens"])},\n"merges": {merges}}},\n'
            f'"encode": {lines(encode)},\n"invalid_utf8": {lines(invalid)},\n"decode": {lines(decode)}}}\n',
            encoding="utf-8",
        )
        print(f"{path}: {path.stat().st_size} bytes, {len(encode)} + {len(invalid)} + {len(decode)} cases")


main()
