"""FastCB (Foster and Krishnamurthy 2021): SquareCB for rules that hardly ever fail.

    predict  f_a = sigmoid((theta_a q - b) / tau)
    show     a ~ p,  p_a = l_best / (K l_best + gamma (l_a - l_best)),  l = 1 - f      Algorithm 1
    learn    by the log loss of the bit:  c = f_a - y,
             theta_a <- ball(theta_a - eta c q / tau),  b <- b + eta c / tau

The oracle is online gradient descent on the log loss of a logistic model, which is convex: each
tool has its row in the unit ball, and all share b, the cosine at which success and failure are as
likely. With regret Reg of the oracle under the log loss, gamma chosen by L* and Reg, and an f* of
the class with ``E[y] = f*``, the regret is O(sqrt(L* K Reg) + K Reg), L* the failures of the best
rule: less than SquareCB's where L* is much less than T, which on the data sets here it is not. Bits
of several right tools are what it expects: nothing sums to one.

43,215 tools of width 1,536: nothing beside Theta in memory, I d products a round, one row moves.
"""

import jax
import jax.numpy as jnp

from jaxret.learners.bandits import inverse_gap, rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner, where_observed
from jaxret.learners.registry import preset
from jaxret.rules import projections
from jaxret.runtime.validate import require

BALL = projections.ball()


@preset
def fastcb(
    *,
    gamma: float = 100.0,
    tau: float = 0.1,
    eta: float = 0.01,
    centre: float = 0.5,
    start: Start = "document",
) -> Learner:
    """FastCB: log loss, a logistic model a tool, reweighted inverse-gap weighting.

    Args:
      gamma: gamma / K of the paper, K the tools that are there, > 0; larger explores less.
      tau: how much of a cosine is one unit of log odds, > 0.
      eta: step size, >= 0; one unit of c moves a row by eta / tau.
      centre: the cosine at which success is even at the start; from zero b starts at 0.
      start: 'document' or 'zero', of the rows.
    """
    require("gamma", gamma, "> 0", lambda x: x > 0)
    require("tau", tau, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    rows.require_start(start)

    def init(theta, available=None):
        first = jnp.asarray(centre if start == "document" else 0.0, theta.dtype)
        theta = projections.project(BALL, rows.first_rows(start, theta))
        return rows.begin(theta, available, first)

    def probabilities(state, query):
        means = jax.nn.sigmoid((state.theta @ query - state.extra) / tau)
        return inverse_gap.inverse_gap(means, state.available, gamma, reweighted=True)

    def act(state, query, key):
        return inverse_gap.drawn(key, probabilities(state, query))

    def update(state, query, choice, feedback):
        row = state.theta[choice.item]
        mean = jax.nn.sigmoid((row @ query - state.extra) / tau)
        step = eta / tau * (mean - feedback.reward)
        row = projections.project(BALL, (row - step * query)[None])[0]
        new = state._replace(theta=state.theta.at[choice.item].set(row), extra=state.extra + step)
        return where_observed(feedback, state, new)

    def scores(state, queries):
        means = jax.nn.sigmoid((rows.compare(queries, state.theta) - state.extra) / tau)
        return rows.where_available(state, means)

    return Learner(
        name="fastcb",
        init=init,
        act=act,
        update=update,
        logits=None,
        scores=scores,
        probabilities=probabilities,
    )
