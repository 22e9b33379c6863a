"""Multiclass perceptrons with bandit feedback: Banditron, Gaptron, SOBA.

All three assume one right tool per query. Banditron and Gaptron are rank one, have the blocked form
and need no memory beside Theta; SOBA needs I d more numbers. All are feasible with 43,215 tools of
width 1,536.

Letters: I = K items, d width.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.learners.bandits import common
from jaxret.learners.bandits.common import Start
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rank_one
from jaxret.learners.registry import preset
from jaxret.rules import estimators, policies, projections
from jaxret.rules.estimators import Estimator
from jaxret.rules.policies import Policy
from jaxret.rules.projections import Projection
from jaxret.rules.schedules import Schedule
from jaxret.runtime import over_items
from jaxret.runtime.validate import require


class SecondOrder(NamedTuple):
    """``State.extra`` of SOBA."""

    diagonal: Float[Array, "I d"]  # diagonal of A
    margin: Float[Array, ""]  # sum of n m


@preset
def banditron(
    *,
    tau: float = 0.02,
    eta: float = 2e-4,
    epsilon: float = 0.05,
    projection: Projection | None = None,
    schedule: Schedule | None = None,
    start: Start = "document",
) -> Learner:
    """Explore epsilon-greedily and take the perceptron's step (Kakade et al. 2008).

    Kakade, Shalev-Shwartz and Tewari (2008), Algorithm 1:

        show     argmax_i <theta_i, q>;  with probability epsilon any of the K tools
        learn    Theta <- Theta - (eta / tau) c q^T,   c = 1[best] - 1[a] y / pi

    with pi the probability of the tool shown. c is unbiased for the step 1[best] - 1[i*] of the
    perceptron, which one bit does not determine. The paper begins at zero, where the step size only
    scales Theta and changes no choice, so epsilon is the only setting. With start 'document' the
    step size weighs mistakes against the documents. The bound on the expected mistakes,
    `jaxret.theory.mistakes.banditron`, holds for unconstrained rows and one right tool.

    Args:
      tau: divisor of the step, > 0; its only other effect is that of usage with start 'hybrid'.
      eta: step size, >= 0.
      epsilon: probability of showing a uniformly drawn tool, in [0, 1].
      projection: constraint on the rows; None: the unit sphere, or none with start 'zero'.
      schedule: factor of eta by round; None: constant.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.

    Raises:
      ValueError: if a setting is out of range.
    """
    common.require_start(start)
    learner = rank_one(
        "banditron",
        estimator=estimators.banditron(),
        policy=policies.epsilon_greedy(epsilon=epsilon),
        tau=tau,
        eta=eta,
        projection=common.default_projection(start) if projection is None else projection,
        schedule=schedule,
    )
    return common.with_start(learner, start)


@preset
def gaptron(
    *, gamma: float = 0.01, tau: float = 0.01, eta: float = 1e-5, start: Start = "document"
) -> Learner:
    """Explore in proportion to the gap between logistic loss and mistakes (Gaptron, O(K sqrt T)).

    Van der Hoeven (2020), Algorithm 1, with the logistic loss, W = Theta / tau:

        explore  e = max(1 - p* 1[p* >= 1/2], gamma)            p* = max_i p_i: the gap map
        show     argmax_i p_i;  with probability e any of the K tools
        learn    W <- W - eta c q^T,   c = (y / pi) (p - 1[a])

    with pi the probability of the tool shown. c is unbiased for p - 1[i*], the gradient of the
    logistic loss, and is 0 after a failure. The gap between the loss, which in base 2 is at least 1
    if p* < 1/2, and the expected mistakes covers the exploration. With one right tool, noiseless
    rewards, ||q|| = 1 and the step eta = tau^2 gamma / (2 K^2), for every U in the balls and with
    the loss in base 2,

        expected mistakes <= sum of the losses of U + gamma T + K^2 |U - W_1|^2 / (gamma ln 2),

    which is O(K sqrt(T)) at the best gamma. With hundreds of tools that step is too small to be
    useful (10^-11), and larger steps have no bound. With L right tools the mean of c is the
    gradient of the sum of their losses, which is bounded below.

    Departures from the paper: each row of Theta is in a unit ball, and W may begin at the
    documents; the paper begins at 0 and keeps all of W in one ball. If no tool has p >= 1/2, all
    tools are shown with equal probability: only a small tau gives confident models. With start
    'hybrid' the logits have offsets, and so have those of U in the bound.

    Args:
      gamma: smallest probability of showing a uniformly drawn tool, in (0, 1].
      tau: temperature, > 0.
      eta: step size, >= 0; multiplied by 1 / pi, which is at most K / gamma.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.

    Raises:
      ValueError: if a setting is out of range.
    """
    common.require_start(start)
    learner = rank_one(
        "gaptron",
        estimator=successes_weighted(),
        policy=gap_map(gamma=gamma),
        projection=projections.ball(),
        tau=tau,
        eta=eta,
    )
    return common.with_start(learner, start)


def successes_weighted() -> Estimator:
    """Return ``c = (y / pi) (p - 1[a])``, the gradient of the logistic loss after a success."""

    def coefficients(obs):
        return obs.reward / obs.propensity * (obs.probs - obs.chosen)

    return Estimator("successes_weighted", coefficients, unbiased=True)


def gap_map(*, gamma: float) -> Policy:
    """Show the best tool; with probability ``max(1 - p* 1[p* >= 1/2], gamma)`` any available one.

    Args:
      gamma: smallest probability of showing a uniformly drawn tool, in (0, 1].

    Raises:
      ValueError: if ``gamma`` is out of range.
    """
    require("gamma", gamma, "in (0, 1]", lambda x: 0 < x <= 1)

    def at(logits, axis):
        top = over_items.maximum(over_items.softmax(logits, axis), axis)
        share: Any = jnp.where(top >= 0.5, jnp.maximum(1.0 - top, gamma), 1.0)
        return policies.epsilon_greedy(epsilon=share)

    def show(key, logits, axis):
        return at(logits, axis).show(key, logits, axis)

    def probabilities(logits, axis=None):
        inner = at(logits, axis).probabilities
        assert inner is not None
        return inner(logits, axis)

    return Policy("gap_map", show, 1, probabilities)


@preset
def soba(
    *, gamma: float = 0.05, ridge: float = 1.0, tau: float = 0.1, start: Start = "document"
) -> Learner:
    """Learn from successes by SOBA, the second-order Banditron, with a diagonal matrix.

    Beygelzimer, Orabona and Zhang (2017), Algorithm 1, with a diagonal A as in their experiments:

        show    argmax_i W_i q;  with probability gamma any available tool
        after a success of tool a, shown with probability pi, and r the best of the other tools:
          g = (1 / pi) (e_r - e_a) q^T,   z = sqrt(pi) g
          m = (<W, z>^2 + 2 <W, g>) / (1 + z A^-1 z)
          n = 1 if m + the sum of past n m >= 0, else 0
          A <- A + n z z^T,   dual <- dual - n g,   W <- A^-1 dual

    With the full A [K d, K d] the regret is Õ(sqrt(T) / eta) for a family of losses from the hinge
    (eta = 0) to its square (eta = 1); a diagonal A has no such guarantee. A failure changes
    nothing, and a reward between 0 and 1 multiplies g. If several tools are right, r may be one of
    them, and its score is lowered.

    Departures from the paper: W may begin at the documents / tau, which are then the centre of the
    regulariser ridge |W - W_1|^2 / 2; the paper begins at zero. Rows are stored as ``Theta = tau
    W``. A scales each row differently, so the update is not rank one: a round takes I d products
    and updates two rows, and A takes I d numbers (265 MB for 43,215 tools of width 1,536).

    With start 'hybrid' the scores W_i q have the offsets o_i / tau, as if o_i were a feature whose
    weight has an infinite diagonal: they decide what is shown, which tool is r, and the products
    <W, g> and <W, z>, while the step is along q alone.

    Args:
      gamma: probability of showing a uniformly drawn tool, in (0, 1].
      ridge: initial diagonal of A, > 0; the paper's a.
      tau: difference of cosines that is a margin of 1, > 0.
      start: 'document'; 'zero'; or 'hybrid', documents with words and usage.

    Returns:
      The learner; `State.extra` is a `SecondOrder`.

    Raises:
      ValueError: if a setting is out of range.
    """
    require("gamma", gamma, "in (0, 1]", lambda x: 0 < x <= 1)
    require("ridge", ridge, "> 0", lambda x: x > 0)
    require("tau", tau, "> 0", lambda x: x > 0)

    def margins(state, query):
        return common.cosines(state, query) / tau

    def learn(state, query, choice, feedback):
        q = query.vector
        scores = margins(state, query)
        others = common.where_available(state, scores)
        others = others.at[choice.item].set(-jnp.inf)
        pair = jnp.stack([jnp.argmax(others).astype(choice.item.dtype), choice.item])  # r, a
        sign = jnp.array([1.0, -1.0], q.dtype)
        weight = feedback.reward / choice.propensity
        g = weight * sign[:, None] * q[None, :]  # the two rows of g that are not 0
        w, a = state.theta[pair] / tau, state.extra.diagonal[pair]
        along = weight * (sign * scores[pair]).sum()  # <W, g>, offsets included
        z2 = choice.propensity * g**2
        m = (choice.propensity * along**2 + 2.0 * along) / (1.0 + (z2 / a).sum())
        learns = (m + state.extra.margin >= 0) & jnp.isfinite(others.max())
        n = learns.astype(q.dtype)
        new_a = a + n * z2
        step = -n * (z2 * w + g) / new_a  # A^-1 dual - W, exactly 0 after a failure
        extra = SecondOrder(
            diagonal=state.extra.diagonal.at[pair].set(new_a), margin=state.extra.margin + n * m
        )
        return state._replace(theta=state.theta.at[pair].add(tau * step), extra=extra)

    return common.bandit(
        "soba",
        start=start,
        acting=common.acting_by(policies.epsilon_greedy(epsilon=gamma), margins),
        learn=learn,
        predict=lambda state, queries: common.cosines_of_all(state, queries) / tau,
        extra=lambda theta: SecondOrder(
            diagonal=jnp.full_like(theta, ridge), margin=jnp.zeros((), theta.dtype)
        ),
    )
