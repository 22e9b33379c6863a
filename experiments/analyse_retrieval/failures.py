"""The tools that a ranking misses, compared with chance."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.evaluation import metrics

SHUFFLES = 200  # shuffles of the misses, for the numbers expected by chance


class Failures(NamedTuple):
    """The misses of one ranking, for the J tools that any of its N queries needs."""

    rates: Float[np.ndarray, " J"]  # in descending order
    by_chance: Float[np.ndarray, " J"]  # the same with misses shuffled over all labels
    queries: Bool[np.ndarray, " N"]  # queries with at least one miss
    numbers: dict[str, float]  # described in `experiments.analyse_retrieval`


def missed(
    items: Int[np.ndarray, "N k"], labels: Int[np.ndarray, "N L"], lengths: Int[np.ndarray, " N"]
) -> Failures:
    """Computes the failures of labels that are not among the items."""
    needed = labels >= 0
    miss = needed & (np.asarray(metrics.ranks_in(items, labels)) == metrics.UNRANKED)
    rates, half = by_tool(labels[needed], miss[needed])
    rng = np.random.default_rng(0)
    others = [by_tool(labels[needed], rng.permutation(miss[needed])) for _ in range(SHUFFLES)]
    numbers = {
        "label": miss[needed].mean(),
        "rate": rates.mean(),
        "sd": rates.std(),
        "sd_chance": np.mean([one.std() for one, _ in others]),
    }
    if miss.any():
        numbers |= {"half": half, "half_chance": np.mean([one for _, one in others])}
    queries = miss.any(axis=1)
    for side, where in {"missed": queries, "found": ~queries}.items():
        numbers[f"{side}/n"] = where.sum()
        if where.any():
            numbers[f"{side}/tokens"] = lengths[where].mean()
            numbers[f"{side}/sd"] = lengths[where].std()
            numbers[f"{side}/tools"] = needed[where].sum(axis=1).mean()
    by_chance = np.mean([one for one, _ in others], axis=0)
    return Failures(rates=rates, by_chance=by_chance, queries=queries, numbers=numbers)


def by_tool(
    tools: Int[np.ndarray, " M"], miss: Bool[np.ndarray, " M"]
) -> tuple[Float[np.ndarray, " J"], float]:
    """Computes each tool's miss rate, worst first, and the smallest share with half the misses.

    Args:
      tools: labels of all queries, concatenated.
      miss: mask of the missed labels.
    """
    needs = np.bincount(tools)
    misses = np.bincount(tools, weights=miss)[needs > 0]
    most = np.cumsum(np.sort(misses)[::-1])
    half = 1 + np.searchsorted(most, most[-1] / 2)
    return np.sort(misses / needs[needs > 0])[::-1], half / len(misses)
