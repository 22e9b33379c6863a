"""One exact ridge regression per tool: LinUCB with disjoint models, and epsilon-greedy.

    A_a     = ridge I + sum_s q_s q_s^T             over the rounds s in which tool a was shown
    A_a^-1  = I / ridge - sum_s g_s g_s^T           g_s = A^-1 q_s / sqrt(1 + q_s^T A^-1 q_s)
    W_a    <- W_a + A_a^-1 q (y - W_a q)            with q counted in A_a

The second line is the Sherman-Morrison formula, applied round after round: one vector per round
determines the inverses of all tools. T rounds therefore take T d numbers for any number of tools:
25 MB for 4,096 rounds of width 1,536, where an inverse for each of 43,215 tools would take 408 GB.
A round costs I d + C d products.

The vectors g are kept in a ring buffer of C rounds, and the regressions are exact until it is full.
From then on each new round removes the oldest ``g g^T`` from the sum of its tool, which restores
the tool's uncertainty before that round but keeps its mean.

Rows are stored as ``Theta = W / scale``, so Theta begins at the documents and W at scale times the
documents; with start 'zero' scale has no effect. The papers begin at zero; here the documents are
the prior mean, ``b_a = ridge W_a,1`` in place of 0. With start 'hybrid' the prediction is
``W_a q + scale o_a`` with the known offset o_a, and the regression is one of y - scale o_a on q.
Each tool has its own regression, so queries with several right tools need no special case.

Letters: I items, d width, C capacity in rounds, N queries.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.learners.bandits import common
from jaxret.learners.bandits.common import Start
from jaxret.learners.learner import Learner, PerItem
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.rules.policies import Policy
from jaxret.runtime.validate import require


class Factors(NamedTuple):
    """The inverses A_a^-1 of all tools."""

    g: Float[Array, "C d"]  # 0 in unused slots
    item: Int[Array, " C"]  # the tool shown
    count: Int[Array, ""]  # rounds so far


@preset
def linucb(
    *,
    alpha: float = 0.1,
    ridge: float = 1.0,
    scale: float = 0.5,
    start: Start = "document",
    capacity: int = 4096,
) -> Learner:
    """Learn by LinUCB, one exact model per tool: the largest mean plus a bonus for uncertainty.

    Li, Chu, Langford and Schapire (2010), Algorithm 1, whose ridge is 1:

        show  argmax_a  W_a q + alpha sqrt(q^T A_a^-1 q)        ties go to the first tool

    The regret Õ(sqrt(K T d)) is proved for SupLinUCB (Chu et al. 2011), a variant that does not
    reuse its own choices, if ``E[y] = W_a q``.

    Args:
      alpha: factor of the standard deviation in the bonus, >= 0.
      ridge: precision of the prior, > 0, in rounds with a query of length 1.
      scale: expected reward at a cosine of 1 with the document, > 0; the rows are W / scale.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.
      capacity: C, rounds in the ring buffer, >= 1.

    Returns:
      The learner; `State.extra` is a `Factors`.

    Raises:
      ValueError: if a setting is out of range.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)

    def upper(state, query):
        variance = variances(state.extra, query.vector, len(state.theta), ridge)
        return scale * common.cosines(state, query) + alpha * jnp.sqrt(variance)

    return ridge_learner(
        "linucb",
        policy=policies.greedy(),
        values=upper,
        ridge=ridge,
        scale=scale,
        start=start,
        capacity=capacity,
    )


@preset
def ridge_epsilon_greedy(
    *,
    epsilon: float = 0.05,
    ridge: float = 1.0,
    scale: float = 0.5,
    start: Start = "document",
    capacity: int = 4096,
) -> Learner:
    """Explore epsilon-greedily around the means of an exact ridge regression per tool.

    Langford and Zhang (2007), with a constant rate of exploration in place of their epochs:

        show  argmax_a W_a q;  with probability epsilon any available tool

    With a constant rate the regret grows linearly: there is no guarantee.

    Args:
      epsilon: probability of showing a uniformly drawn tool, in [0, 1].
      ridge: precision of the prior, > 0, in rounds with a query of length 1.
      scale: expected reward at a cosine of 1 with the document, > 0; the rows are W / scale.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.
      capacity: C, rounds in the ring buffer, >= 1.

    Returns:
      The learner; `State.extra` is a `Factors`.

    Raises:
      ValueError: if a setting is out of range.
    """
    return ridge_learner(
        "ridge_epsilon_greedy",
        policy=policies.epsilon_greedy(epsilon=epsilon),
        values=lambda state, query: scale * common.cosines(state, query),
        ridge=ridge,
        scale=scale,
        start=start,
        capacity=capacity,
    )


def ridge_learner(
    name: str,
    *,
    policy: Policy,
    values: PerItem,
    ridge: float,
    scale: float,
    start: Start,
    capacity: int,
) -> Learner:
    """Build a learner that predicts rewards by one ridge regression per tool.

    Args:
      name: name of the learner.
      policy: policy of one tool, applied to the values.
      values: state, whose ``extra`` is a `Factors`, and `Known` query -> [I].
      ridge: precision of the prior, > 0; may be traced.
      scale: expected reward at a cosine of 1 with the document, > 0; may be traced.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.
      capacity: C, rounds in the ring buffer, >= 1.

    Raises:
      ValueError: if a setting is out of range.
    """
    require("ridge", ridge, "> 0", lambda x: x > 0)
    require("scale", scale, "> 0", lambda x: x > 0)
    require("capacity", capacity, ">= 1", lambda x: x >= 1)

    def learn(state, query, choice, feedback):
        factors, gain = observe(state.extra, query.vector, choice.item, ridge)
        error = feedback.reward / scale - common.cosine_of(state, query, choice.item)
        theta = state.theta.at[choice.item].add(error * gain)
        return state._replace(theta=theta, extra=factors)

    def extra(theta):
        g = jnp.zeros((capacity, theta.shape[1]), theta.dtype)
        return Factors(g, item=jnp.zeros(capacity, jnp.int32), count=jnp.zeros((), jnp.int32))

    return common.bandit(
        name,
        start=start,
        acting=common.acting_by(policy, values),
        learn=learn,
        predict=lambda state, queries: scale * common.cosines_of_all(state, queries),
        extra=extra,
    )


def variances(
    factors: Factors, query: Float[Array, " d"], items: int, ridge: float
) -> Float[Array, " I"]:
    """Compute ``q^T A_a^-1 q`` of every tool.

    Args:
      factors: the inverses.
      query: q [d].
      items: I.
      ridge: precision of the prior, > 0.

    Returns:
      [I], >= 0.
    """
    along = (factors.g @ query) ** 2
    known = jax.ops.segment_sum(along, factors.item, num_segments=items)
    return jnp.maximum(query @ query / ridge - known, 0.0)


def observe(
    factors: Factors, query: Float[Array, " d"], item: Int[Array, ""], ridge: float
) -> tuple[Factors, Float[Array, " d"]]:
    """Update the inverse of a tool by one round.

    Args:
      factors: the inverses.
      query: q [d].
      item: a, the tool shown.
      ridge: precision of the prior, > 0.

    Returns:
      The new factors, and the gain ``A_a^-1 q`` [d] with q counted in A_a.
    """
    slot = factors.count % len(factors.g)
    # The new round replaces the oldest one, which no longer counts.
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
