"""Few combinations of options that hold every pair of values: most faults of options need two of them to meet."""

import itertools
import random


def pairwise(factors: dict[str, list], seed: int = 1) -> list[dict]:
    """Rows {factor: value} such that any two values of different factors are in a row together. The same rows for the
    same seed.

    Greedy: each row begins with a pair that is still missing, and takes of every other factor the value that brings
    most missing pairs; chance breaks ties. (After D. M. Cohen et al., "The AETG System", 1997, simplified.)"""
    chance = random.Random(seed)
    names = list(factors)
    missing = {
        frozenset(((a, i), (b, j)))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    rows = []
    while missing:
        row = dict(min(missing, key=lambda pair: sorted(pair)))
        others = [name for name in names if name not in row]
        chance.shuffle(others)
        for name in others:
            indices = list(range(len(factors[name])))
            chance.shuffle(indices)
            row[name] = max(
                indices, key=lambda i: sum(frozenset(((name, i), chosen)) in missing for chosen in row.items())
            )
        missing -= {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}
        rows.append({name: factors[name][row[name]] for name in names})
    return rows
