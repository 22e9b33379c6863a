"""Compiled functions of a live index, and the list of tools on a ticket.

Letters: I rows of the state, d width, k items shown, n queries or tools.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.learners.confidence import confidence, is_calibrated
from jaxret.learners.learner import Learner, change_rows, without_past
from jaxret.learners.rank_one import position_probabilities
from jaxret.runtime.memo import memoized
from jaxret.simulation.trace import of_item
from jaxret.types import Feedback, State

SIZES = (8, 64)  # numbers of queries for which the batched search is compiled


@memoized  # indices of one learner share their programs
def start_of(learner: Learner) -> Callable[..., State]:
    """Compile the initial state.

    Returns:
      (Theta [I, d], available [I]) -> the state.
    """
    return jax.jit(learner.init)


@memoized
def search_of(learner: Learner) -> Callable[..., Any]:
    """Compile the search of one query.

    Returns:
      (state, available [I], query, key, number) -> the slate, scores [I], the probability [I] of
      each tool or None, the probability of each position of the slate [k], and the confidence of
      the first, NaN if it is not known.
    """
    return jax.jit(_search(learner))


@memoized
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


@memoized
def update_of(learner: Learner) -> Callable[..., State]:
    """Compile the update by observed feedback, which overwrites the arrays of the state.

    New arrays of this size would take longer to allocate than to compute.

    Returns:
      (state, query, choice, reward) -> the new state; the old one is deleted.
    """

    def update(state, query, choice, reward):
        return learner.update(state, query, choice, Feedback(reward, observed=True))

    return jax.jit(update, donate_argnums=0)


@memoized
def initial_rows_of(learner: Learner) -> Callable[..., Float[Array, "n d"]]:
    """Compile the projection of descriptions to initial rows.

    Returns:
      (state, rows of n tools [n], descriptions [n, d]) -> initial rows [n, d].
    """
    return jax.jit(partial(_projected, learner))


def _projected(learner, state, where, descriptions):
    theta = state.theta.at[where].set(descriptions)
    return learner.init(theta, state.available).theta[where]


@memoized
def describe_of(learner: Learner) -> Callable[..., tuple[State, Float[Array, "n d"]]]:
    """Compile a change of descriptions, after which the tools are available.

    Returns:
      (state, rows of n tools [n], descriptions [n, d], initial rows before [n, d], ``how`` as in
      `LiveCatalogue.redescribe`) -> the new state and the new initial rows [n, d].
    """

    def described(state, where, descriptions, before, how):
        starts = _projected(learner, state, where, descriptions)

        def change(theta):
            moved = starts if how == "reset" else starts + theta[where] - before
            own = state._replace(theta=theta)
            return theta.at[where].set(_projected(learner, own, where, moved))

        new = state if how == "keep" else change_rows(learner, state, change)
        if how == "reset":
            new = without_past(new, jnp.zeros(len(state.theta), bool).at[where].set(True))
        return new._replace(available=new.available.at[where].set(True)), starts

    return jax.jit(described, static_argnums=4)


@jax.jit
def enlarged(state: State, larger: State) -> State:
    """Copy a state into the corner of one with more rows."""

    def keep(old, new):
        return new.at[tuple(slice(0, n) for n in old.shape)].set(old)

    return jax.tree.map(keep, state, larger)


def padded(queries: list[Any], size: int) -> Any:
    """Stack queries, and repeat the last one up to ``size``."""
    queries = [*queries, *[queries[-1]] * (size - len(queries))]
    return jax.tree.map(lambda *one: np.stack([np.asarray(x) for x in one]), *queries)


def best_first(scores: Float[np.ndarray, " I"], n: int) -> Int[np.ndarray, " n"]:
    """Return the rows of the n largest scores, best first; ties go to the earlier row.

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
