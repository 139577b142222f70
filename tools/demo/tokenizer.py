"""The vocabulary: byte-level BPE with Qwen3.5's pre-tokenizer, 1008 ordinary tokens and Qwen's marks.

    0..1007      ordinary: 256 bytes and 752 merges, learnt from generated documents
    1008..1010   <|endoftext|> <|im_start|> <|im_end|>                  control tokens
    1011..1016   <tool_call> .. </think>                                 user-defined, as in Qwen's files
    1017..1023   [PAD1017] ..                                            unused rows; the last is left for a drafter's mask

A larger vocabulary does not pay here: 84 tokens per document become 80 with 1536.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterable

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

N_ORDINARY = 1008
N_VOCAB = 1024
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
MARKS = CONTROL + USER_DEFINED
END_OF_TEXT, END_OF_TURN = N_ORDINARY, N_ORDINARY + 2
STOP = {END_OF_TEXT, END_OF_TURN}

# The rule that GGUF files call `qwen35`.
PRE_TOKENIZER = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def empty(model: models.BPE) -> Tokenizer:
    tok = Tokenizer(model)
    split = pre_tokenizers.Split(Regex(PRE_TOKENIZER), "isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return tok


def add_marks(tok: Tokenizer) -> Tokenizer:
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in USER_DEFINED])
    return tok


def learn(texts: Iterable[str]) -> Tokenizer:
    """Learns the merges. Marks are cut out of the texts first, so that no merge holds a part of one."""

    def pieces():
        for text in texts:
            for mark in MARKS:
                text = text.replace(mark, "\0")
            yield from filter(None, text.split("\0"))

    tok = empty(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=N_ORDINARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tok.train_from_iterator(pieces(), trainer)
    return add_marks(tok)


def load(path: Path) -> Tokenizer:
    """From a tokenizer.json, or from the metadata of a GGUF file."""
    if path.suffix != ".gguf":
        return Tokenizer.from_file(str(path))
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()[:N_ORDINARY]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    return add_marks(empty(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges)))


def encode(tok: Tokenizer, text: str) -> list[int]:
    return tok.encode(text, add_special_tokens=False).ids


def encode_spans(tok: Tokenizer, documents: list[list[tuple[str, float]]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Documents of (text, weight) spans -> (ids, weight of each token).

    A document is tokenized as one string and a token takes the weight of the span its first character lies in: encoding
    prompt and answer apart would split "\\n\\n" after </think> in another way than a chat does.
    """
    texts = ["".join(text for text, _ in spans) for spans in documents]
    out = []
    for spans, encoding in zip(documents, tok.encode_batch(texts, add_special_tokens=False), strict=True):
        ends = np.cumsum([len(text) for text, _ in spans])
        span = np.searchsorted(ends, [a for a, _ in encoding.offsets], side="right")
        out.append((np.array(encoding.ids, np.int64), np.array([w for _, w in spans], np.float32)[span]))
    return out
