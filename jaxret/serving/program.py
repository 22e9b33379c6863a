"""The compiled parts of a search and of feedback, and the list that is made of a search.

Letters: I rows of the state, k items shown, n queries.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxret.learners.confidence import confidence, is_calibrated
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import position_probabilities
from jaxret.simulation.trace import of_item
from jaxret.types import Feedback, State

SIZES = (8, 64)  # queries of one call of the program of many


@lru_cache(maxsize=32)  # indices of one learner share their programs
def search_of(learner: Learner) -> Callable[..., Any]:
    """Compile the search of one query.

    Returns:
      (state, available [I], query, key, number) -> the slate, scores [I], the probability [I] of
      each tool or None, the probability of each position of the slate [k], and the confidence of
      the first, NaN if it is not known.
    """
    return jax.jit(_search(learner))


@lru_cache(maxsize=32)
def searches_of(learner: Learner) -> Callable[..., Any]:
    """Compile the search of n queries, whose fields and numbers have a leading axis n."""
    return jax.jit(jax.vmap(_search(learner), (None, None, 0, None, 0)))


def _search(learner: Learner) -> Callable[..., Any]:
    @jax.default_matmul_precision("highest")  # that of `scores`, so that both give one order
    def search(state, available, query, key, number):
        state = state._replace(available=available)
        slate = learner.act(state, query, jax.random.fold_in(key, number))
        scores = learner.scores(state, jax.tree.map(lambda x: x[None], query))[0]
        p = None if learner.probabilities is None else learner.probabilities(state, query)
        works = confidence(learner, state, query) if is_calibrated(learner) else None
        sure = of_item(works, slate.items[0])
        return slate, scores, p, position_probabilities(learner, state, query, slate), sure

    return search


@lru_cache(maxsize=32)
def update_of(learner: Learner) -> Callable[..., State]:
    """Compile the update by observed feedback, which overwrites the arrays of the state.

    New arrays of this size would take longer to allocate than to compute.

    Returns:
      (state, query, choice, reward) -> the new state; the old one is deleted.
    """

    def update(state, query, choice, reward):
        return learner.update(state, query, choice, Feedback(reward, observed=True))

    return jax.jit(update, donate_argnums=0)


def padded(queries: list[Any], size: int) -> Any:
    """Stack queries, and repeat the last one up to ``size``."""
    queries = [*queries, *[queries[-1]] * (size - len(queries))]
    return jax.tree.map(lambda *one: np.stack([np.asarray(x) for x in one]), *queries)


def best_first(scores: Float[np.ndarray, " I"], n: int) -> Int[np.ndarray, " n"]:
    """Return the rows of the n largest scores, of equal ones the first, without sorting all.

    Returns:
      [n].
    """
    if n >= len(scores):
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, len(scores) - n)[len(scores) - n]  # the n-th largest
    above = np.flatnonzero(scores > least)
    equal = np.flatnonzero(scores == least)[: n - len(above)]
    rows = np.sort(np.concatenate([above, equal]))
    return rows[np.argsort(-scores[rows], kind="stable")]


def on_list(
    row: int, ranked: Int[np.ndarray, " n"], p: Float[np.ndarray, " I"] | None, k: int
) -> float:
    """Compute the probability that a tool is on a list of k: chosen, or best of the rest.

    Args:
      row: row of the tool.
      ranked: the best rows, k of them or all.
      p: probability that each tool is chosen [I]; None: unknown.
      k: length of the list.

    Returns:
      The probability; NaN if it is not known.
    """
    if p is None:
        return math.nan
    above = ranked[: k - 1]  # on the list for every choice
    if row in above:
        return 1.0
    if row not in ranked[:k]:
        return float(p[row])  # only where it is chosen
    return float(min(1.0, p[row] + p[above].sum()))
