"""Pairs (query, right tool) with tools to tell it from, found on the host.

    random_negatives   m tools drawn evenly from the wrong ones           Tool-REX's Tool-Embed: 5
    hard_negatives     the m best wrong ones of a first stage             DPR: 1, of BM25

Both give rows (query, right tool, m wrong tools), one for each label of each query, -1 where there
is no wrong tool left; shuffling is the task of `jaxret.training.batches`.

Letters: n queries, L labels a query (padded with -1), I tools, m negatives a pair, M pairs.
"""

import numpy as np
from jaxtyping import Int

from jaxret.runtime.validate import require, require_labels


def random_negatives(
    labels: Int[np.ndarray, "n L"], items: int, *, count: int, seed: int = 0
) -> Int[np.ndarray, "M 2+m"]:
    """Pairs with wrong tools drawn without replacement, anew for each pair.

    Args:
      labels: of each query.
      items: I.
      count: m, >= 1.
      seed: of the draws.

    Returns:
      a line a query and label [M, 2 + m]: the query, the label, m wrong tools, -1 where there are
      fewer.

    Raises:
      ValueError: naming the first query whose labels are no labels of this catalogue.
    """
    require("count", count, ">= 1", lambda m: m >= 1)
    require_labels(labels, items)
    rng = np.random.default_rng(seed)

    def draw(row):
        others = np.delete(np.arange(items), row[row >= 0])
        return rng.permutation(others)[:count]

    return _pairs(labels, count, lambda query: draw(labels[query]))


def hard_negatives(
    labels: Int[np.ndarray, "n L"], candidates: Int[np.ndarray, "n N"], *, count: int
) -> Int[np.ndarray, "M 2+m"]:
    """Pairs with the best wrong tools of a first stage.

    Args:
      labels: of each query.
      candidates: items of a first stage, best first, -1 pads.
      count: m, >= 1.

    Returns:
      a line a query and label [M, 2 + m]: the query, the label, m wrong tools, -1 where there are
      fewer.
    """
    require("count", count, ">= 1", lambda m: m >= 1)

    def best(query):
        some = candidates[query]
        return some[(some >= 0) & ~np.isin(some, labels[query])][:count]

    return _pairs(labels, count, best)


def _pairs(labels, count, wrong):
    queries, places = np.nonzero(labels >= 0)
    found = np.full((len(queries), 2 + count), -1, np.int64)
    found[:, 0], found[:, 1] = queries, labels[queries, places]
    for pair, query in zip(found, queries, strict=True):
        items = wrong(query)
        pair[2 : 2 + len(items)] = items
    return found
