"""The policy whose value is asked for: how probable it is that it shows each tool, query by query.

    Snapshot(run.learner, run.state(0))      a learner that has learnt, frozen where it is
    frozen()                                 a learner as it begins, at the rows of the log's task
    chances [T, I]                           numbers, for any other policy

It must not have learnt from the rounds on which it is evaluated.

Letters: I items, d width, T rounds, n some of them.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret.learners.learner import Learner, OfQuery
from jaxret.logs import Log
from jaxret.runtime.validate import require
from jaxret.types import State

BATCH = 256  # queries at once


class Snapshot(NamedTuple):
    """A learner and a state that it is in."""

    learner: Learner
    state: State


Policy: TypeAlias = Learner | Snapshot | Float[np.ndarray, "T I"]


class Target(NamedTuple):
    """A policy as functions of rounds of a log; each gives [n, I] in float64."""

    chances: Callable[[slice], Float[np.ndarray, "n I"]]  # of each tool, to be shown (first)
    scores: Callable[[slice], Float[np.ndarray, "n I"]] | None  # None: it ranks nothing


def snapshot(log: Log, learner: Learner | Snapshot) -> Snapshot:
    """The state a learner begins in, on the rows of the log's catalogue; a snapshot stays one."""
    if isinstance(learner, Snapshot):
        return learner
    if log.theta is None:
        raise ValueError(
            f"learner {learner.name!r} has no rows to begin from: read the log with its task, or "
            "give a Snapshot"
        )
    here = None if log.available is None else jnp.asarray(log.available)
    return Snapshot(learner, learner.init(jnp.asarray(log.theta), here))


def target(log: Log, policy: Policy) -> Target:
    """Reads a policy.

    Raises:
      ValueError: for a learner that does not know its chances, or rows that are not probabilities.
    """
    if isinstance(policy, np.ndarray):
        rows = np.asarray(policy, np.float64)
        require(
            "the chances' shape", rows.shape, f"[{log.rounds}, I]", lambda x: x[0] == log.rounds
        )
        wrong = ~((rows >= 0).all(axis=1) & (abs(rows.sum(axis=1) - 1) < 1e-4))
        if wrong.any():
            raise ValueError(f"the chances of round {wrong.argmax()} are no probabilities of sum 1")
        return Target(chances=lambda part: rows[part], scores=None)
    learner, state = snapshot(log, policy)
    functions: tuple[Any, Any] = first_chances(learner), learner.scores
    chances = _in_batches(_each(functions[0]), state, log)
    scores = _in_batches(_all(functions[1]), state, log)

    def normalised(part):
        rows = chances(part)
        return rows / rows.sum(axis=1, keepdims=True)  # float32 sums to 1 in 6 digits

    return Target(chances=normalised, scores=scores)


def first_chances(learner: Learner) -> OfQuery:
    """The chance of each tool to be shown, or to be drawn first where several are.

    Raises:
      ValueError: for a learner that does not know them.
    """
    if learner.probabilities is not None:
        return learner.probabilities
    drawn_from = None if learner.rule is None else learner.rule.policy.drawn_from
    logits = learner.logits
    if drawn_from is None or logits is None:
        raise ValueError(
            f"learner {learner.name!r} does not say with which chance it shows each tool: without "
            "`Learner.probabilities` nothing can be said of it from a log"
        )
    return lambda state, query: drawn_from(logits(state, query))


@lru_cache(maxsize=64)  # a study asks the same learners of many logs
def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.vmap(function, (None, 0)))


@lru_cache(maxsize=64)
def _all(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(function)


def _in_batches(
    rows: Callable[..., Any], state: State, log: Log
) -> Callable[[slice], Float[np.ndarray, "n I"]]:
    """A function of queries for some rounds, in batches of one shape."""

    def of(part: slice) -> np.ndarray:
        queries = log.query[part]
        found = []
        for first in range(0, len(queries), BATCH):
            batch = queries[first : first + BATCH]
            padded = np.pad(batch, ((0, BATCH - len(batch)), (0, 0)))
            found.append(np.asarray(rows(state, padded), np.float64)[: len(batch)])
        return np.concatenate(found) if found else np.zeros((0, len(state.theta)))

    return of
