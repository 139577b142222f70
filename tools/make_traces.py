#!/usr/bin/env python3
"""Write traces of routing (src/experts/trace.h) for `sluice simulate` that no model made: made by seed, each with one
property that a policy of eviction may stumble over.  Standard library only; the same arguments give the same bytes.

  uniform   every expert as likely as any other: nothing to learn, the bound is all there is
  topics    few experts are popular, others only in a topic; topics last for some 24 tokens and come back
  drift     few are popular, and which they are changes slowly for good
  cycle     tokens go round through all experts: what was used longest ago is needed next
  scan      popular experts, and now and then a run of tokens that goes once through all the others
  phases    two topics of long duration in turn, that share nothing

Examples
  all, as they lie in the tree    make_traces.py --all tests/data/traces
  one, larger                     make_traces.py topics -o big.trace --layers 40 --experts 256 --tokens 2000
"""
import argparse
import bisect
import itertools
import json
import pathlib
import random

TOPICS = 16
TOPIC_EXPERTS = 5  # of the experts of a layer, one in so many belongs to a topic
BOOST = 12  # how much likelier an expert is in its topic
RUN = 24  # mean tokens of a topic


class Layers:
    """Draws the experts of a token, distinct, by weights that a kind sets."""

    def __init__(self, args, rng):
        self.n, self.k, self.rng = args.experts, args.used, rng
        # Rank by popularity, different in every layer.
        self.order = [self.shuffled() for _ in range(args.layers)]

    def shuffled(self):
        order = list(range(self.n))
        for i in range(self.n - 1, 0, -1):
            j = int(self.rng.random() * (i + 1))
            order[i], order[j] = order[j], order[i]
        return order

    def draw(self, weights):
        sums = list(itertools.accumulate(weights))
        chosen = []
        while len(chosen) < self.k:
            expert = min(bisect.bisect_right(sums, self.rng.random() * sums[-1]), self.n - 1)
            if expert not in chosen:
                chosen.append(expert)
        return chosen

    def by_rank(self, layer, shift=0):
        weights = [0.0] * self.n
        for rank, expert in enumerate(self.order[layer]):
            weights[expert] = 1.0 / (1 + (rank + shift) % self.n)
        return weights


def uniform(args, layers):
    for _ in range(args.tokens):
        yield [layers.draw([1.0] * args.experts) for _ in range(args.layers)]


def topics(args, layers):
    plain = [layers.by_rank(layer) for layer in range(args.layers)]
    by_topic = []
    for _ in range(TOPICS):
        by_topic.append([list(weights) for weights in plain])
        for weights in by_topic[-1]:
            for expert in layers.shuffled()[: args.experts // TOPIC_EXPERTS]:
                weights[expert] *= BOOST
    topic = 0
    for _ in range(args.tokens):
        if layers.rng.random() < 1 / RUN:
            # Some topics are talked of more than others.
            topic = int(layers.rng.random() * layers.rng.random() * TOPICS)
        yield [layers.draw(weights) for weights in by_topic[topic]]


def drift(args, layers):
    for token in range(args.tokens):
        shift = token * args.experts // 1600
        yield [layers.draw(layers.by_rank(layer, shift)) for layer in range(args.layers)]


def cycle(args, layers):
    for token in range(args.tokens):
        yield [
            [order[(token * args.used + i) % args.experts] for i in range(args.used)] for order in layers.order
        ]


def scan(args, layers):
    plain = [layers.by_rank(layer) for layer in range(args.layers)]
    hot = args.experts // 4
    cold = args.experts - hot
    at = 0
    for token in range(args.tokens):
        if token % 48 < cold // args.used:  # one token of the scan
            yield [[order[hot + (at + i) % cold] for i in range(args.used)] for order in layers.order]
            at += args.used
        else:
            yield [layers.draw([w if w > 1 / (hot + 1) else 0.0 for w in weights]) for weights in plain]


def phases(args, layers):
    halves = []
    for parity in range(2):
        halves.append([])
        for layer in range(args.layers):
            weights = layers.by_rank(layer)
            halves[-1].append([w if expert % 2 == parity else 0.0 for expert, w in enumerate(weights)])
    for token in range(args.tokens):
        yield [layers.draw(weights) for weights in halves[token // 200 % 2]]


KINDS = {f.__name__: f for f in (uniform, topics, drift, cycle, scan, phases)}


def write(path, kind, args):
    rng = random.Random(f"{kind} {args.seed}")
    header = {
        "sluice_trace": 1,
        "architecture": f"synthetic {kind}",
        "n_layers": args.layers,
        "n_experts": args.experts,
        "experts_used": args.used,
        "tokens": args.tokens,
        "form": "u8" if args.experts <= 256 else "u16",
    }
    width = 1 if args.experts <= 256 else 2
    with open(path, "wb") as out:
        out.write(json.dumps(header, separators=(",", ":")).encode() + b"\n")
        for token in KINDS[kind](args, Layers(args, rng)):
            for experts in token:
                out.write(b"".join(expert.to_bytes(width, "little") for expert in experts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=sorted(KINDS))
    parser.add_argument("-o", "--output")
    parser.add_argument("--all", metavar="DIR", help="write every kind into a folder")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--used", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if bool(args.all) == bool(args.kind) or bool(args.kind) != bool(args.output):
        parser.error("give a kind and --output, or --all")
    if args.all:
        for kind in KINDS:
            write(pathlib.Path(args.all) / f"{kind}.trace", kind, args)
    else:
        write(args.output, args.kind, args)


if __name__ == "__main__":
    main()
