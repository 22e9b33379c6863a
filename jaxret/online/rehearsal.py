"""Old bits once more: each round a few past rounds are learnt from again.

A bit is dear and a step is cheap. A learner whose estimator is a likelihood may look at what it was
told as often as it likes: the gradient of ``-log P(y | q, a)`` at today's Theta needs no new
feedback, and vanishes where the model has come to agree with the bit. (Eq. (4) does not: of a
success it says ``p - 1 / pi`` however large p has grown, and rows that are free run away.)

Past rounds are learnt from at once, all of them at the Theta that the new round left: they cost one
more step together, not one each.

Letters: C rounds remembered, d width.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.online.learner import Learner
from jaxret.types import Choice, PRNGKey
from jaxret.validate import require


class Past(NamedTuple):
    """Rounds that were played; a ring, the oldest is overwritten first."""

    query: Float[Array, "C d"]
    item: Int[Array, " C"]
    propensity: Float[Array, " C"]
    reward: Float[Array, " C"]


class RehearsalState(NamedTuple):
    """The learner's own state, and the past."""

    inner: Any
    available: Bool[Array, " I"]
    t: Int[Array, ""]
    past: Past

    @property
    def theta(self) -> Float[Array, "I d"]:
        """The rows of the inner learner."""
        return self.inner.theta


def rehearsing(learner: Learner, *, again: int, capacity: int, seed: int = 0) -> Learner:
    """A learner that goes over ``again`` past rounds after each new one.

    Args:
      learner: one that learns from bits, best by a likelihood.
      again: past rounds a round, >= 1, drawn evenly from those that are remembered.
      capacity: C, rounds that are remembered, >= 1.
      seed: of the draws.
    """
    if learner.rule is not None and not learner.rule.estimator.bandit:
        raise ValueError(f"learner {learner.name!r} is told labels, and bits alone are remembered")
    if (rehearse := learner.rehearse) is None:
        raise ValueError(f"learner {learner.name!r} cannot rehearse: take a rank-one learner")
    require("again", again, ">= 1", lambda x: x >= 1)
    require("capacity", capacity, ">= 1", lambda x: x >= 1)

    def init(theta, available):
        inner = learner.init(theta, available)
        past = Past(
            query=jnp.zeros((capacity, theta.shape[1]), theta.dtype),
            item=jnp.zeros(capacity, jnp.int32),
            propensity=jnp.ones(capacity, theta.dtype),
            reward=jnp.zeros(capacity, theta.dtype),
        )
        return RehearsalState(inner=inner, available=available, t=inner.t, past=past)

    def current(state):
        return state.inner._replace(available=state.available)

    def act(state, query, key):
        return learner.act(current(state), query, key)

    def update(state, query, choice, reward, labels):
        inner, info = learner.update(current(state), query, choice, reward, labels)
        slot = state.t % capacity
        past = Past(
            query=state.past.query.at[slot].set(query),
            item=state.past.item.at[slot].set(choice.item),
            propensity=state.past.propensity.at[slot].set(choice.propensity),
            reward=state.past.reward.at[slot].set(reward),
        )
        known = jnp.minimum(state.t + 1, capacity)
        drawn = jax.random.randint(draw_key(seed, state.t), (again,), 0, known)
        # A loop: XLA would join a gather to the writing above, and copy all of the past for it.
        old = lax.map(lambda i: jax.tree.map(lambda x: x[i], past), drawn)
        here = state.available[old.item]  # a tool that has gone is not spoken of
        choices = Choice(item=old.item, propensity=old.propensity)
        inner = rehearse(inner, old.query, choices, old.reward, here.astype(old.reward.dtype))
        return RehearsalState(
            inner=inner, available=state.available, t=state.t + 1, past=past
        ), info

    def see(state, queries):
        return learner.see(current(state), queries)

    return Learner(f"{learner.name}+rehearsal", init, act, update, None, see)


def draw_key(seed: int, t: Int[Array, ""]) -> PRNGKey:
    """The key of round t's draws: they do not depend on what the policy draws."""
    return jax.random.fold_in(jax.random.key(seed), t)
