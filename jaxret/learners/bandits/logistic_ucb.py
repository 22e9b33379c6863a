"""Logistic UCB with a diagonal Hessian: a logistic regression a tool, and a bonus.

    E[y]  = sigmoid(W_a q - centre / tau)
    show    argmax_a  W_a q + alpha sqrt(sum_j q_j^2 / H_aj)
    learn   W_a <- argmin_w  1/2 sum_j H_aj (w_j - W_aj)^2 + log loss of the bit at w
            H_aj <- H_aj + p (1 - p) q_j^2,   p at the new W_a

The bonus is GLM-UCB's (Filippi et al. 2010; Faury et al. 2020 for the logistic model), with the
diagonal of the Hessian in place of all of it; the step is that of Chapelle and Li (2011), Algorithm
3, with one bit a batch. It is solved exactly: the new W_a lies at ``W_a + s q / H_a``, and s is the
one root of ``s = y - sigmoid(logit + s sum_j q_j^2 / H_aj)``. The papers' Õ(d sqrt(T)) is for the
whole Hessian, and not for this. Bits of several right tools are what it expects: nothing sums to
one.

Rows are kept as ``Theta = tau W``: they begin at the documents, in cosines. 43,215 tools of width
1,536: I d numbers more (265 MB), 2 I d products a round, one row moves.

Letters: I items, d width.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxret.learners.bandits import rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner, where_observed
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.runtime.validate import require

_HALVINGS = 48  # of an interval of length 1, for every precision


@preset
def logistic_ucb(
    *,
    alpha: float = 0.3,
    ridge: float = 1.0,
    tau: float = 0.1,
    centre: float = 0.6,
    start: Start = "document",
) -> Learner:
    """Logistic UCB, a model and a diagonal Hessian a tool.

    Args:
      alpha: width of the bonus, in units of log odds, >= 0.
      ridge: H at the start, > 0.
      tau: how much of a cosine is one unit of log odds, > 0.
      centre: the cosine at which success is even; from zero it is 0.
      start: 'document' or 'zero', of the rows.
    """
    require("alpha", alpha, ">= 0", lambda x: x >= 0)
    require("ridge", ridge, "> 0", lambda x: x > 0)
    require("tau", tau, "> 0", lambda x: x > 0)
    rows.require_start(start)
    policy = policies.greedy()
    even = centre if start == "document" else 0.0

    def init(theta, available=None):
        theta = rows.first_rows(start, theta)
        return rows.begin(theta, available, jnp.full_like(theta, 1.0) / ridge)  # 1 / H

    def upper(state, query):
        bonus = alpha * jnp.sqrt(state.extra @ query**2)
        return rows.where_available(state, state.theta @ query / tau + bonus)

    def act(state, query, key):
        return policy.show(key, upper(state, query), None)

    def probabilities(state, query):
        assert policy.probabilities is not None
        return policy.probabilities(upper(state, query))

    def update(state, query, choice, feedback):
        variance = state.extra[choice.item]
        logit = (state.theta[choice.item] @ query - even) / tau
        width = variance @ query**2
        s = proximal_step(logit, width, feedback.reward)
        p = jax.nn.sigmoid(logit + s * width)
        less = variance / (1.0 + p * (1.0 - p) * query**2 * variance)
        new = state._replace(
            theta=state.theta.at[choice.item].add(tau * s * variance * query),
            extra=state.extra.at[choice.item].set(less),
        )
        return where_observed(feedback, state, new)

    def scores(state, queries):
        logits = (rows.compare(queries, state.theta) - even) / tau
        return rows.where_available(state, jax.nn.sigmoid(logits))

    return Learner(
        name="logistic_ucb",
        init=init,
        act=act,
        update=update,
        logits=None,
        scores=scores,
        probabilities=probabilities,
    )


def proximal_step(
    logit: Float[Array, ""], width: Float[Array, ""], reward: Float[Array, ""]
) -> Float[Array, ""]:
    """The root of ``s = y - sigmoid(logit + s width)``, by bisection of [y - 1, y].

    Returns:
      [].
    """

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        above = middle + jax.nn.sigmoid(logit + middle * width) > reward
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    low, high = lax.fori_loop(0, _HALVINGS, halve, (reward - 1.0, reward))
    return 0.5 * (low + high)
