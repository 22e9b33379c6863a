"""SOBA, diagonal: the second-order Banditron (Beygelzimer, Orabona and Zhang 2017, Algorithm 1).

    show    argmax_i W_i q;  with probability gamma any tool
    where a success came of tool a, shown with chance pi, and r is the best of the other tools:
      g = (1 / pi) (e_r - e_a) q^T,   z = sqrt(pi) g
      m = (<W, z>^2 + 2 <W, g>) / (1 + z A^-1 z)
      n = 1 if m + the sum of past n m >= 0, else 0
      A <- A + n z z^T,   dual <- dual - n g,   W <- A^-1 dual

With A whole, K d x K d, regret is Õ(sqrt(T) / eta) for a family of losses from the hinge (eta = 0)
to its square (eta = 1). Here A is diagonal, the form of the paper's experiments, which has no such
statement; a failure teaches nothing. W begins where dual / A does: at zero, or at the documents /
tau, which makes them the centre of the regulariser, ridge |W - W_1|^2 / 2. tau says how large a
difference of cosines is a margin of 1. Rows are kept as ``Theta = tau W``. It counts on one right
tool a query: where there are several, r may be right too, and is pushed down.

A reward between 0 and 1 multiplies g. 43,215 tools of width 1,536: I d numbers more (265 MB), I d
products a round, two rows move. Not rank one: every row has directions of its own in A.

Letters: I items, d width.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.learners.bandits import rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner, where_observed
from jaxret.learners.registry import preset
from jaxret.rules import policies
from jaxret.runtime.validate import require


class SecondOrder(NamedTuple):
    """What SOBA remembers beside W."""

    diagonal: Float[Array, "I d"]  # of A
    margin: Float[Array, ""]  # sum of n m


@preset
def soba(
    *, gamma: float = 0.05, ridge: float = 1.0, tau: float = 0.1, start: Start = "document"
) -> Learner:
    """SOBA, diagonal: the second-order Banditron, which learns from successes.

    Args:
      gamma: share of the rounds with any tool, in (0, 1].
      ridge: A at the start, > 0; the paper's a.
      tau: the difference of cosines that is a margin of 1, > 0.
      start: 'document' or 'zero', of the rows.
    """
    require("gamma", gamma, "in (0, 1]", lambda x: 0 < x <= 1)
    require("ridge", ridge, "> 0", lambda x: x > 0)
    require("tau", tau, "> 0", lambda x: x > 0)
    rows.require_start(start)
    policy = policies.epsilon_greedy(epsilon=gamma)

    def init(theta, available=None):
        theta = rows.first_rows(start, theta)
        extra = SecondOrder(diagonal=jnp.full_like(theta, ridge), margin=jnp.zeros((), theta.dtype))
        return rows.begin(theta, available, extra)

    def margins(state, query):
        return rows.where_available(state, state.theta @ query / tau)

    def act(state, query, key):
        return policy.show(key, margins(state, query), None)

    def probabilities(state, query):
        assert policy.probabilities is not None
        return policy.probabilities(margins(state, query))

    def update(state, query, choice, feedback):
        others = margins(state, query).at[choice.item].set(-jnp.inf)
        pair = jnp.stack([jnp.argmax(others).astype(choice.item.dtype), choice.item])  # r, a
        sign = jnp.array([[1.0], [-1.0]], query.dtype)
        weight = feedback.reward / choice.propensity
        g = weight * sign * query[None, :]  # the two rows of g that are not 0
        w, a = state.theta[pair] / tau, state.extra.diagonal[pair]
        along = (w * g).sum()
        z2 = choice.propensity * g**2
        m = (choice.propensity * along**2 + 2.0 * along) / (1.0 + (z2 / a).sum())
        learns = (m + state.extra.margin >= 0) & jnp.isfinite(others.max())
        n = learns.astype(query.dtype)
        new_a = a + n * z2
        step = -n * (z2 * w + g) / new_a  # A^-1 dual less W: nothing at all after a failure
        extra = SecondOrder(
            diagonal=state.extra.diagonal.at[pair].set(new_a),
            margin=state.extra.margin + n * m,
        )
        theta = state.theta.at[pair].add(tau * step)
        return where_observed(feedback, state, state._replace(theta=theta, extra=extra))

    def scores(state, queries):
        return rows.where_available(state, rows.compare(queries, state.theta) / tau)

    return Learner(
        name="soba",
        init=init,
        act=act,
        update=update,
        logits=None,
        scores=scores,
        probabilities=probabilities,
    )
