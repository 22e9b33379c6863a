"""A ridge regression for each tool, exact, from the queries that the tool was shown for.

    A_a     = ridge I + sum_s q_s q_s^T             over the rounds s in which tool a was shown
    A_a^-1  = I / ridge - sum_s g_s g_s^T           g_s = A^-1 q_s / sqrt(1 + q_s^T A^-1 q_s)
    W_a    <- W_a + A_a^-1 q (y - W_a q)            with A_a that counts q in

The second line is Sherman and Morrison's formula, round after round (all rounds of a tool at once
it is Woodbury's): one vector a round says all there is to know of every A_a. So T rounds take T d
numbers whatever the number of tools: 25 MB for 4,096 rounds of width 1,536, where an inverse for
each of 43,215 tools would take 408 GB. A round costs I d + C d products. What is remembered is a
ring of C rounds, and exact for as long as they are not used up; then the oldest ``g g^T`` is taken
out of its tool's sum, which makes that tool as uncertain as it was before, and leaves its mean.

Rows are kept as ``Theta = W / scale``, so that they begin at the documents, and W at scale times
them: ``scale`` is what a cosine of 1 promises. From zero it makes no difference.

Letters: I items, d width, C rounds remembered, N queries.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.learners.bandits import rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner, where_observed
from jaxret.rules.policies import Policy
from jaxret.runtime.validate import require
from jaxret.types import State


class Factors(NamedTuple):
    """The inverses of all tools."""

    g: Float[Array, "C d"]  # 0 where there was no round yet
    item: Int[Array, " C"]  # whose it is
    count: Int[Array, ""]  # rounds so far


def no_factors(capacity: int, width: int, dtype) -> Factors:
    """Of tools that were never shown."""
    return Factors(
        g=jnp.zeros((capacity, width), dtype),
        item=jnp.zeros(capacity, jnp.int32),
        count=jnp.zeros((), jnp.int32),
    )


def variances(
    factors: Factors, query: Float[Array, " d"], items: int, ridge: float
) -> Float[Array, " I"]:
    """``q^T A_a^-1 q`` of every tool.

    Returns:
      [I].
    """
    along = (factors.g @ query) ** 2
    known = jax.ops.segment_sum(along, factors.item, num_segments=items)
    return jnp.maximum(query @ query / ridge - known, 0.0)


def observe(
    factors: Factors, query: Float[Array, " d"], item: Int[Array, ""], ridge: float
) -> tuple[Factors, Float[Array, " d"]]:
    """One more round of a tool.

    Returns:
      the factors, and the gain ``A_a^-1 q`` [d] with q counted in.
    """
    slot = factors.count % len(factors.g)
    # The oldest round makes room: it no longer counts.
    mine = (factors.item == item) & (jnp.arange(len(factors.g)) != slot)
    along = jnp.where(mine, factors.g @ query, 0.0)
    v = query / ridge - along @ factors.g
    more = 1.0 + query @ v
    factors = Factors(
        g=factors.g.at[slot].set(v / jnp.sqrt(more)),
        item=factors.item.at[slot].set(item),
        count=factors.count + 1,
    )
    return factors, v / more


def ridge_learner(
    name: str,
    *,
    policy: Policy,
    values: Callable[[State, Float[Array, " d"]], Float[Array, " I"]],
    ridge: float,
    scale: float,
    start: Start,
    capacity: int,
) -> Learner:
    """A learner that predicts bits by a ridge regression a tool.

    Args:
      name: of the learner.
      policy: who is shown, by the values.
      values: state, whose ``extra`` are the `Factors`, and query -> [I].
      ridge: > 0; may be traced.
      scale: of the documents as the prior mean, > 0; may be traced.
      start: where rows begin.
      capacity: C, rounds remembered, >= 1.
    """
    require("ridge", ridge, "> 0", lambda x: x > 0)
    require("scale", scale, "> 0", lambda x: x > 0)
    require("capacity", capacity, ">= 1", lambda x: x >= 1)
    rows.require_start(start)
    policy_chances = policy.probabilities

    def init(theta, available=None):
        factors = no_factors(capacity, theta.shape[1], theta.dtype)
        return rows.begin(rows.first_rows(start, theta), available, factors)

    def shown_by(state, query):
        return rows.where_available(state, values(state, query))

    def act(state, query, key):
        return policy.show(key, shown_by(state, query), None)

    def probabilities(state, query):
        assert policy_chances is not None
        return policy_chances(shown_by(state, query))

    def update(state, query, choice, feedback):
        factors, gain = observe(state.extra, query, choice.item, ridge)
        error = feedback.reward / scale - state.theta[choice.item] @ query
        theta = state.theta.at[choice.item].add(error * gain)
        return where_observed(feedback, state, state._replace(theta=theta, extra=factors))

    def scores(state, queries):
        return rows.where_available(state, scale * rows.compare(queries, state.theta))

    return Learner(
        name=name,
        init=init,
        act=act,
        update=update,
        logits=None,
        scores=scores,
        probabilities=None if policy_chances is None else probabilities,
    )
