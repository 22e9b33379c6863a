"""Inverse-gap weighting, and the two bandits that explore by it: SquareCB and FastCB.

    SquareCB    p_a = 1 / (K + gamma gap_a)               gap_a = f_b - f_a,  b = argmax f
    FastCB      p_a = l_b / (K l_b + gamma gap_a)         l = 1 - f, the predicted loss
    both        p_b = 1 - the sum of the others, which is at least 1 / K

f_a in [0, 1] is the predicted probability of success of tool a; the papers predict losses. K is the
number of available tools. The theory takes gamma of the order of K, so the setting is
``gamma / K``, which works for catalogues of any size: the K - 1 other tools then share a
probability of about the mean of ``1 / (1 + gamma/K gap)``.

Both learners predict ``f_a = link(theta_a q + b)`` and learn by online gradient descent, with each
row in the unit ball and one intercept b for all tools; with start 'hybrid' the cosine theta_a q has
a known offset. The predictions need not sum to one, so queries with several right tools need no
special case.

Cost per round: I d products; one row is updated; no memory beside Theta. 43,215 tools of width
1,536 are feasible.

Letters: I items, K of them available, d width.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxret.learners.bandits import common
from jaxret.learners.bandits.common import Start
from jaxret.learners.learner import Acting, Learner
from jaxret.learners.registry import preset
from jaxret.rules import projections
from jaxret.runtime import over_items
from jaxret.runtime.validate import require
from jaxret.types import PRNGKey, Slate


@preset
def squarecb(*, gamma: float = 100.0, eta: float = 0.1, start: Start = "document") -> Learner:
    """Learn by SquareCB: square loss, a linear model per tool, inverse-gap weighting.

    Foster and Rakhlin (2020), Algorithm 1, with online gradient descent on the square loss as the
    oracle, one of the oracles that the paper names:

        predict  f_a = theta_a q + b, clipped to [0, 1]
        show     a ~ p,  p_a = 1 / (K + gamma (f_best - f_a))
        learn    theta_a <- ball(theta_a - eta (f_a - y) q),  b <- b - eta (f_a - y)

    The update uses f_a before clipping. With regret Reg of the oracle, mu = K and gamma = sqrt(K T
    / Reg), the regret is at most 4 sqrt(K T Reg) plus a term for the confidence, if ``E[y] = f*(q,
    a)`` for an f* of the class (realizability, which is not guaranteed here). Descent of K rows has
    Reg = O(sqrt(K T)), so Theorem 1 gives O((K T)^(3/4)). The paper has no intercept; b corrects
    the level of the cosines.

    Args:
      gamma: gamma / K of the paper, with K available tools, > 0; a larger value explores less.
      eta: step size, >= 0, in reward per unit of error.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.

    Returns:
      The learner; `State.extra` is b [].

    Raises:
      ValueError: if a setting is out of range.
    """
    return _inverse_gap_learner(
        "squarecb",
        link=lambda linear: linear,
        bounded=lambda means: jnp.clip(means, 0.0, 1.0),
        reweighted=False,
        gamma=gamma,
        eta=eta,
        rate=eta,
        first=0.0,
        start=start,
    )


@preset
def fastcb(
    *,
    gamma: float = 100.0,
    tau: float = 0.1,
    eta: float = 0.01,
    centre: float = 0.5,
    start: Start = "document",
) -> Learner:
    """Learn by FastCB: log loss, a logistic model per tool, reweighted inverse-gap weighting.

    Foster and Krishnamurthy (2021), Algorithm 1, with online gradient descent on the log loss of a
    logistic model, which is convex, as the oracle:

        predict  f_a = sigmoid((theta_a q + b) / tau)
        show     a ~ p,  p_a = l_best / (K l_best + gamma (l_a - l_best)),  l = 1 - f
        learn    c = f_a - y,  theta_a <- ball(theta_a - eta c q / tau),  b <- b - eta c / tau

    With regret Reg of the oracle under the log loss, gamma chosen by L* and Reg, and
    ``E[y] = f*`` for an f* of the class, the regret is O(sqrt(L* K Reg) + K Reg), where L* is the
    number of failures of the best policy. This is less than SquareCB's regret if L* is much less
    than T, which is not the case on the data sets in `experiments`. The paper has no tau and no b.

    Args:
      gamma: gamma / K of the paper, with K available tools, > 0; a larger value explores less.
      tau: difference of cosines that is one unit of log odds, > 0.
      eta: step size, >= 0; one unit of c moves a row by eta / tau.
      centre: cosine with initial success probability 1/2, b = -centre; b = 0 with start 'zero'.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.

    Returns:
      The learner; `State.extra` is b [].

    Raises:
      ValueError: if a setting is out of range.
    """
    require("tau", tau, "> 0", lambda x: x > 0)
    return _inverse_gap_learner(
        "fastcb",
        link=lambda linear: jax.nn.sigmoid(linear / tau),
        bounded=lambda means: means,
        reweighted=True,
        gamma=gamma,
        eta=eta,
        rate=eta / tau,
        first=0.0 if start == "zero" else -centre,
        start=start,
    )


def inverse_gap(
    means: Float[Array, " I"],
    available: Bool[Array, " I"],
    gamma_over_k: float | Float[Array, ""],
    *,
    reweighted: bool = False,
) -> Float[Array, " I"]:
    """Compute the probability with which each tool is shown.

    Args:
      means: predicted probabilities of success [I], in [0, 1]; ties go to the first tool.
      available: mask [I] of the available tools, at least one.
      gamma_over_k: gamma / K, > 0.
      reweighted: whether to use FastCB's formula, which explores little if the best tool hardly
        ever fails, instead of SquareCB's.

    Returns:
      [I], sum 1.
    """
    count = available.sum().astype(means.dtype)
    best = jnp.argmax(jnp.where(available, means, -jnp.inf))
    gap = jnp.where(available, means[best] - means, 0.0)
    # Keep the loss above zero: tools tied with a best tool of loss 0 would get 0 / 0.
    unit = jnp.maximum(1.0 - means[best], 1e-6) if reweighted else 1.0
    others = unit / (count * (unit + gamma_over_k * gap))
    others = jnp.where(available, others, 0.0).at[best].set(0.0)
    return others.at[best].set(1.0 - others.sum())


def draw(key: PRNGKey, probabilities: Float[Array, " I"]) -> Slate:
    """Draw one tool.

    Returns:
      A slate of one tool, its probability as the propensity.
    """
    item = over_items.draw(probabilities, jax.random.uniform(key, dtype=probabilities.dtype), None)
    return Slate(items=item[None], propensity=probabilities[item][None])


def _inverse_gap_learner(
    name: str,
    *,
    link: Callable[[Array], Array],
    bounded: Callable[[Array], Array],
    reweighted: bool,
    gamma: float,
    eta: float,
    rate: float,
    first: float,
    start: Start,
) -> Learner:
    """Build a learner that explores by inverse gaps and descends on a loss with slope f_a - y."""
    require("gamma", gamma, "> 0", lambda x: x > 0)
    require("eta", eta, ">= 0", lambda x: x >= 0)
    ball = projections.ball()

    def probabilities(state, query):
        means = bounded(link(common.cosines(state, query) + state.extra))
        return inverse_gap(means, state.available, gamma, reweighted=reweighted)

    def learn(state, query, choice, feedback):
        value = common.cosine_of(state, query, choice.item) + state.extra
        step = rate * (link(value) - feedback.reward)
        row = state.theta[choice.item] - step * query.vector
        row = projections.project(ball, row[None])[0]
        return state._replace(theta=state.theta.at[choice.item].set(row), extra=state.extra - step)

    return common.bandit(
        name,
        start=start,
        acting=Acting(
            lambda state, query, key: draw(key, probabilities(state, query)), probabilities
        ),
        learn=learn,
        predict=lambda state, queries: link(common.cosines_of_all(state, queries) + state.extra),
        extra=lambda theta: jnp.asarray(first, theta.dtype),
        projection=ball,
    )
