"""Rows of choices in which every two choices meet, for tests of what composes: no test by itself."""
import itertools


def pairs_of(row): return {(a, row[a], b, row[b]) for a, b in itertools.combinations(row, 2)}


def drawn(choices, r): return {k: r.choice(v) for k, v in choices.items()}


def greedy(choices, r, most=1000, fits=lambda row: True, tries=400):
    """The best of `tries` random rows, again and again, until all pairs are covered or there are `most` rows; and the
    pairs left over."""
    rows, left = [], {(a, x, b, y) for a, b in itertools.combinations(choices, 2) for x in choices[a]
                      for y in choices[b]}
    while left and len(rows) < most:
        some = [t for t in (drawn(choices, r) for _ in range(tries)) if fits(t)]
        rows.append(max(some, key=lambda t: len(pairs_of(t) & left)))
        left -= pairs_of(rows[-1])
    return rows, left
