"""Answers come after some rounds, out of order; several in one round, or none.

    fixed(20)                           each after 20 rounds
    uniform(longest=100)                after 0 to 100, all alike
    geometric(mean=50, longest=500)     most soon, a few late

What is sent waits in a ring of C places, as many as an answer can be under way: the place of round
t is free again before round t + C writes it. Those that are due in a round arrive together, and are
learnt from one by one, the oldest first.

Letters: C places, d width, L labels.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime import over_items
from jaxret.runtime.validate import require
from jaxret.types import Choice, PRNGKey, State


class Delay(NamedTuple):
    """How long an answer is under way."""

    chances: Float[Array, " C"]  # of 0, 1, .., C - 1 rounds; sum 1


class Answer(NamedTuple):
    """What comes back for a round: with the query and the choice that it is about."""

    query: Float[Array, " d"]
    choice: Choice
    reward: Float[Array, ""]
    observed: Bool[Array, ""] | None = None  # None: there always is one
    labels: Int[Array, " L"] | None = None  # for an oracle


class Pending(NamedTuple):
    """What is under way; the leaves of ``answers`` begin with the C places."""

    due: Int[Array, " C"]  # the round in which it arrives, -1 where nothing waits
    answers: Answer


def fixed(rounds: int) -> Delay:
    """Each answer after ``rounds`` rounds, >= 0; 0 is at once, as in a plain world."""
    require("rounds", rounds, ">= 0", lambda n: n >= 0)
    return Delay(jnp.asarray(np.arange(rounds + 1) == rounds, jnp.float32))


def uniform(*, longest: int) -> Delay:
    """After 0 to ``longest`` rounds, each as likely; ``longest`` >= 0."""
    require("longest", longest, ">= 0", lambda n: n >= 0)
    return Delay(jnp.full(longest + 1, 1 / (longest + 1), jnp.float32))


def geometric(*, mean: float, longest: int | None = None) -> Delay:
    """In each round that it is under way an answer is as likely to arrive.

    Args:
      mean: rounds, >= 0, of a delay that were never cut short.
      longest: >= 0, the latest; the probabilities up to it are scaled to sum 1. None: ten times the
        mean, beyond which few would be.
    """
    require("mean", mean, ">= 0", lambda x: x >= 0)
    require("longest", longest, "None or >= 0", lambda n: n is None or n >= 0)
    rounds = np.arange((round(10 * mean) if longest is None else longest) + 1)
    weights = (mean / (1 + mean)) ** rounds
    return Delay(jnp.asarray(weights / weights.sum(), jnp.float32))


def nothing_pending(places: int, like: Answer) -> Pending:
    """A ring in which nothing waits, for answers of the form of ``like``."""
    blank = jax.tree.map(lambda x: jnp.zeros((places, *x.shape), x.dtype), like)
    return Pending(due=jnp.full(places, -1, jnp.int32), answers=blank)


def sent(
    delay: Delay, pending: Pending, t: Int[Array, ""], key: PRNGKey, answer: Answer
) -> Pending:
    """The answer of round t goes on its way. ``key`` is consumed."""
    rounds = over_items.draw(delay.chances, jax.random.uniform(key), None)
    place = t % len(pending.due)
    answers = jax.tree.map(lambda ring, x: ring.at[place].set(x), pending.answers, answer)
    return Pending(due=pending.due.at[place].set(t + rounds), answers=answers)


def delivered(
    pending: Pending,
    t: Int[Array, ""],
    state: State,
    learn: Callable[[State, Answer], State],
) -> tuple[State, Pending]:
    """Everything that is due in round t, learnt in the order in which it was sent.

    Args:
      pending: what is under way.
      t: the round.
      state: of the learner, today.
      learn: one answer.
    """
    places = len(pending.due)
    age = (t - jnp.arange(places, dtype=jnp.int32)) % places  # of this round's own place: 0

    def any_due(carry):
        return (carry[1] == t).any()

    def learn_oldest(carry):
        state, due = carry
        place = jnp.argmax(jnp.where(due == t, age, -1))
        answer = jax.tree.map(lambda ring: ring[place], pending.answers)
        return learn(state, answer), due.at[place].set(-1)

    state, due = lax.while_loop(any_due, learn_oldest, (state, pending.due))
    return state, pending._replace(due=due)
