"""Learning from a log: a learner goes through its rounds as if it had served them.

    warm = warm_start(log, greedy())                      a `Snapshot`
    log = with_chances(log, orag())                       what the learner that served knew

Letters: I items, d width, T rounds, n rounds at once.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxret.learners.learner import Learner
from jaxret.logs import Log, take
from jaxret.offline.target import Snapshot, first_chances, snapshot
from jaxret.types import Choice, Feedback, State

BATCH = 256  # rounds a program
CLOSE = 2e-3  # relative: what float32 rounds in another form of the same run


def warm_start(log: Log, learner: Learner | Snapshot) -> Snapshot:
    """Learns from every round of a log, in its order; where nobody answered, nothing.

    The bits are those of tools that another learner chose, with its propensities. An update that
    divides by the propensity, or follows the likelihood of the bit, may learn from them; one that
    takes tools for drawn from its own probabilities (`chosen_only`) is biased by them.

    Args:
      log: its rounds.
      learner: begins at the rows of the log's task; a snapshot goes on from its state.

    Raises:
      ValueError: for an oracle, and where a learner needs a propensity that is not known.
    """
    start = snapshot(log, learner)
    if start.learner.facts.oracle:
        raise ValueError(f"learner {start.learner.name!r} is an oracle: a log has no labels for it")
    update: Any = start.learner.update
    learn, state = _learning(update), start.state
    for first in range(0, log.rounds, BATCH):
        state = learn(state, _rounds(take(log, slice(first, first + BATCH))))
    if np.isnan(np.asarray(state.theta)).any():
        raise ValueError(
            f"learner {start.learner.name!r} came to rows that are not numbers: it needs "
            "propensities that the log does not have, or smaller steps"
        )
    return Snapshot(start.learner, state)


def with_chances(log: Log, served: Learner | Snapshot) -> Log:
    """The log with the chances of all tools in each round, and not of the one that was used alone.

    The learner that served goes through its log again: its state in each round is that of the
    bits before. Doubly robust intervals and marginalised weights need these chances; they are held
    all at once, [T, I] in float32, and ``by_place`` becomes theirs, which differs by rounding.

    Args:
      log: of one tool a round; its learner learnt from each round before the next, or never.
      served: the learner that wrote the log, as it was before the first of these rounds.

    Raises:
      ValueError: for slates, for answers that came out of order, and where the chances are not
        those that the log has: then another learner wrote it, or one that began elsewhere.
    """
    start = snapshot(log, served)
    name = start.learner.name
    chances: Any = first_chances(start.learner)
    if log.slate.shape[1] > 1:
        raise ValueError(f"the log has slates of {log.slate.shape[1]}: chances are known for one")
    steps = np.diff(log.version)
    learns = bool((steps == 1).all()) and len(steps) > 0
    if (not learns and steps.any()) or (log.version < 0).any():
        raise ValueError(
            f"{name!r} did not learn from each round before the next, as its versions say: what "
            "it knew in a round cannot be worked out again"
        )

    update: Any = start.learner.update if learns else None
    go_through, state, found = _knowing(chances, update), start.state, []
    for first in range(0, log.rounds, BATCH):
        state, p = go_through(state, _rounds(take(log, slice(first, first + BATCH))))
        found.append(np.asarray(p))
    every = np.concatenate(found)
    used = every[np.arange(log.rounds), log.item].astype(np.float64)
    off = abs(used - log.by_place[:, 0]) > CLOSE * log.by_place[:, 0]
    if off.any():
        t = int(off.argmax())
        raise ValueError(
            f"round {log.round[t]} has the propensity {log.by_place[t, 0]:.4g}, and {name!r} would "
            f"have had {used[t]:.4g} ({off.sum()} such): it did not write this log, or began from "
            "another state"
        )
    return log._replace(chances=every, by_place=used[:, None])


@lru_cache(maxsize=64)  # a study warms the same learners by many logs
def _learning(update: Callable[..., Any]) -> Callable[..., State]:
    """A program that goes through rounds."""

    @jax.jit
    def learn(state, rounds):
        def step(state, one):
            return _updated(update, state, *one), None

        return lax.scan(step, state, rounds)[0]

    return learn


@lru_cache(maxsize=64)
def _knowing(
    chances: Callable[..., Any], update: Callable[..., Any] | None
) -> Callable[..., tuple[State, Any]]:
    """A program that goes through rounds and keeps the chances of each; None: nothing is learnt."""

    @jax.jit
    def go_through(state, rounds):
        def step(state, one):
            p = chances(state, one[0])
            return state if update is None else _updated(update, state, *one), p

        return lax.scan(step, state, rounds)

    return go_through


def _rounds(log: Log):
    """Queries, choices, rewards and whether somebody answered, as arrays of JAX."""
    answered = ~np.isnan(log.reward)
    choice = Choice(
        item=jnp.asarray(log.item, jnp.int32), propensity=jnp.asarray(log.propensity, jnp.float32)
    )
    reward = np.where(answered, log.reward, 0).astype(np.float32)
    return jnp.asarray(log.query), choice, jnp.asarray(reward), jnp.asarray(answered)


def _updated(update, state: State, query, choice: Choice, reward, answered) -> State:
    return update(state, query, choice, Feedback(reward=reward, observed=answered))
