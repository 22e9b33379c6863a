"""SquareCB (Foster and Rakhlin 2020): inverse-gap weighting on an online regression of the bits.

    predict  f_a = theta_a q + b, kept in [0, 1]
    show     a ~ p,  p_a = 1 / (K + gamma (f_best - f_a))                Algorithm 1
    learn    theta_a <- ball(theta_a - eta (f_a - y) q),  b <- b - eta (f_a - y)

The oracle is online gradient descent on the square loss, one of those that they name: each tool has
its row in the unit ball, and all share b, which puts the level of the cosines right. With regret
Reg of the oracle, mu = K and gamma = sqrt(K T / Reg), the regret is at most 4 sqrt(K T Reg) plus a
term for the confidence, where ``E[y] = f*(q, a)`` for an f* of the class: realizability, which
nothing here makes true. Descent of K rows has Reg = O(sqrt(K T)), Theorem 1 then gives O((K
T)^(3/4)). Bits of several right tools are what it expects: nothing sums to one.

43,215 tools of width 1,536: nothing beside Theta in memory, I d products a round, one row moves.
"""

import jax.numpy as jnp

from jaxret.learners.bandits import inverse_gap, rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner, where_observed
from jaxret.learners.registry import preset
from jaxret.rules import projections
from jaxret.runtime.validate import require

BALL = projections.ball()


@preset
def squarecb(*, gamma: float = 100.0, eta: float = 0.1, start: Start = "document") -> Learner:
    """SquareCB: square loss, a linear model a tool, inverse-gap weighting.

    Args:
      gamma: gamma / K of the paper, K the tools that are there, > 0; larger explores less.
      eta: step size, >= 0.
      start: 'document' or 'zero', of the rows.
    """
    require("gamma", gamma, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    rows.require_start(start)

    def init(theta, available=None):
        theta = projections.project(BALL, rows.first_rows(start, theta))
        return rows.begin(theta, available, jnp.zeros((), theta.dtype))

    def probabilities(state, query):
        means = jnp.clip(state.theta @ query + state.extra, 0.0, 1.0)
        return inverse_gap.inverse_gap(means, state.available, gamma)

    def act(state, query, key):
        return inverse_gap.drawn(key, probabilities(state, query))

    def update(state, query, choice, feedback):
        row = state.theta[choice.item]
        error = row @ query + state.extra - feedback.reward
        row = projections.project(BALL, (row - eta * error * query)[None])[0]
        new = state._replace(
            theta=state.theta.at[choice.item].set(row), extra=state.extra - eta * error
        )
        return where_observed(feedback, state, new)

    def scores(state, queries):
        means = rows.compare(queries, state.theta) + state.extra
        return rows.where_available(state, means)

    return Learner(
        name="squarecb",
        init=init,
        act=act,
        update=update,
        logits=None,
        scores=scores,
        probabilities=probabilities,
    )
