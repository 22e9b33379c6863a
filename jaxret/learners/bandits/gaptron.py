"""Gaptron with the logistic loss, from bits (van der Hoeven 2020, Algorithm 1).

    explore  e = max(1 - p* 1[p* >= 1/2], gamma)            p* = max_i p_i: the gap map
    show     argmax_i p_i;  with probability e any of the K tools
    learn    W <- W - eta c q^T,   c = (y / pi) (p - 1[a])          pi: the chance of the tool shown

c is unbiased for p - 1[i*], the gradient of the logistic loss, and is 0 after a failure. What
exploring costs is paid by the gap between that loss, in base 2 at least 1 where p* < 1/2, and the
mistakes expected. With one right tool, clean bits, ||q|| = 1 and the step eta = tau^2 gamma / (2
K^2): for every U in the balls, with the loss in base 2,

    expected mistakes <= sum of the losses of U + gamma T + K^2 |U - W_1|^2 / (gamma ln 2),

which is O(K sqrt(T)) at the best gamma. That step is far too small to be of use with hundreds of
tools (10^-11), and larger ones have no bound. With L right tools the mean of c is the gradient of
the sum of their losses, which stays bounded below.

Here W = Theta / tau, with each row of Theta in a unit ball, and W_1 may be the documents; the
paper's is 0, and all of W lies in one ball. Where no tool has p >= 1/2 every tool is shown alike: a
small tau, which makes the model sure, is what lets it serve at all.

43,215 tools of width 1,536: nothing beside Theta; rank one, so it has the blocked form.
"""

from typing import Any

import jax.numpy as jnp

from jaxret.learners.bandits import rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rank_one
from jaxret.learners.registry import preset
from jaxret.rules import policies, projections
from jaxret.rules.estimators import Estimator
from jaxret.rules.policies import Policy
from jaxret.runtime import over_items
from jaxret.runtime.validate import require


@preset
def gaptron(
    *, gamma: float = 0.01, tau: float = 0.01, eta: float = 1e-5, start: Start = "document"
) -> Learner:
    """Gaptron: explores as much as the logistic loss is above the mistakes; O(K sqrt T).

    Args:
      gamma: least share of the rounds with any tool, in (0, 1].
      tau: temperature.
      eta: step size; 1 / pi, up to K / gamma, multiplies it.
      start: 'document' or 'zero', of the rows.
    """
    rows.require_start(start)
    learner = rank_one(
        "gaptron",
        estimator=successes_weighted(),
        policy=gap_map(gamma=gamma),
        projection=projections.ball(),
        tau=tau,
        eta=eta,
    )

    def init(theta, available=None):
        return learner.init(rows.first_rows(start, theta), available)

    return learner._replace(init=init)


def successes_weighted() -> Estimator:
    """``c = (y / pi) (p - 1[a])``: the gradient of the logistic loss, where the bit tells it."""

    def coefficients(obs):
        return obs.reward / obs.propensity * (obs.probs - obs.chosen)

    return Estimator("successes_weighted", coefficients, unbiased=True)


def gap_map(*, gamma: float) -> Policy:
    """The best; with probability ``max(1 - p* 1[p* >= 1/2], gamma)`` any tool that is there.

    Args:
      gamma: in (0, 1].
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
