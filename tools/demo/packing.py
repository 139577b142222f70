"""Documents into rows of fixed length, first-fit, about 99 % full. Documents are never cut: too long ones are dropped."""

from __future__ import annotations

import random
from itertools import islice
from typing import Iterator

import numpy as np
import torch
from tokenizers import Tokenizer

from documents import Mix, stream
from tokenizer import encode_spans

ROW = 512               # tokens
OPEN_ROWS = 48          # rows that documents are sorted into at a time
BATCH = 256             # documents tokenized at once


def packed(seed: int, mix: Mix, tok: Tokenizer) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Endless rows: ids [ROW], loss weights [ROW] (zero: padding), starts of documents [ROW]."""
    documents, order = stream(seed, mix), random.Random(seed)
    bins: list[list] = []
    while True:
        for ids, weight in encode_spans(tok, list(islice(documents, BATCH))):
            if len(ids) > ROW:
                continue
            for b in bins:
                if sum(len(d[0]) for d in b) + len(ids) <= ROW:
                    b.append((ids, weight))
                    break
            else:
                bins.append([(ids, weight)])
            if len(bins) > OPEN_ROWS:
                fullest = max(range(len(bins)), key=lambda i: sum(len(d[0]) for d in bins[i]))
                yield lay_out(bins.pop(fullest), order)


def lay_out(docs: list, order: random.Random):
    order.shuffle(docs)
    ids, weight, start = np.zeros(ROW, np.int64), np.zeros(ROW, np.float32), np.zeros(ROW, bool)
    at = 0
    for doc, w in docs:
        ids[at:at + len(doc)], weight[at:at + len(doc)], start[at] = doc, w, True
        at += len(doc)
    if at < ROW:
        start[at] = True        # the padding is a document of its own, of no weight
    return ids, weight, start


def batches(seed: int, mix: Mix, tok: Tokenizer, rows: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Endless batches of `rows` rows, as tensors [rows, ROW]."""
    source = packed(seed, mix, tok)
    while True:
        yield tuple(torch.from_numpy(np.stack(part)) for part in zip(*islice(source, rows), strict=True))
