"""Estimators of the gradient from one bit of feedback.

Every rule moves the item embeddings by a rank-one step, ``Theta <- Theta - eta * outer(c, q)``,
so an estimator returns the coefficients ``c [I]`` and never a gradient [I, d]. With the
model's probabilities ``p``, the chosen item ``a``, its propensity ``pi`` and the bit ``y``:

    importance_weighted   c = p - 1[a] y / pi              unbiased   ORAG Eq. (4)
    chosen_only           c = 1[a] (1 - y / pi)            unbiased   ORAG App. B.2
    full_information      c = p - 1[i*]                    the exact gradient, not a bandit
    debiased              Eq. (4) with (y - rho)/(1 - 2 rho) for y: unbiased under noise  (ours)
    implicit_exploration  Eq. (4) with pi + gamma for pi   biased, low variance           (ours)
    clipped               Eq. (4) with max(pi, floor)      biased, low variance           (ours)
    bandit_likelihood     c = grad of -log P(y | a)        biased, low variance           (ours)
    banditron             c = 1[argmax p] - 1[a] y / pi    unbiased for the perceptron step

'Unbiased' means that the average of c over ``a ~ pi`` equals ``p - 1[i*]``, the gradient of
``-log p_{i*}`` (Lemma 3.1); `chosen_only` also needs ``p = pi``. With L right items and success =
'the chosen item is one of them', Eq. (4) has the mean ``p - 1[labels]``, the gradient of a loss
that is unbounded below for L > 1: constrain the rows to a ball or sphere, or use an estimator
without this problem (bandit_likelihood, chosen_only).

Letters: I items, p [I], c [I].
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require


class Observation(NamedTuple):
    """One observed round as the input of an estimator, with items as masks [I].

    Attributes:
      probs: the model's probabilities p [I], zero where an item is absent.
      chosen: mask of the chosen item, 1[i = a] [I].
      best: mask of the most probable item, 1[i = argmax p] [I].
      target: 1[labels] / L over the available labels [I]; None unless the estimator is an oracle.
      p_chosen: the model's probability of the chosen item, p_a [].
      propensity: probability pi with which the item was chosen [].
      reward: reward y [].
    """

    probs: Float[Array, " I"]
    chosen: Float[Array, " I"]
    best: Float[Array, " I"]
    target: Float[Array, " I"] | None
    p_chosen: Float[Array, ""]
    propensity: Float[Array, ""]
    reward: Float[Array, ""]


class Coefficients(Protocol):
    """Map one observed round to the coefficient of every item.

    The map must be elementwise in the items, so that it can run on a slice of the catalogue, and
    zero where ``probs`` and ``chosen`` are zero.
    """

    def __call__(self, obs: Observation) -> Float[Array, " I"]: ...


class Estimator(NamedTuple):
    """A named coefficient function, and its properties.

    Attributes:
      name: name of the estimator in tables.
      coefficients: function from an `Observation` to the coefficients c [I].
      unbiased: whether Lemma 3.1 holds for items drawn from p.
      bandit: whether the function reads only the reward, and never ``target``.
      noise_rate: rate of label noise at which ``unbiased`` holds.
    """

    name: str
    coefficients: Coefficients
    unbiased: bool
    bandit: bool = True
    noise_rate: float | Float[Array, ""] = 0.0


@memoized
def importance_weighted(*, divide_by: str = "propensity") -> Estimator:
    """Estimate the gradient by ORAG Eq. (4): ``c = p - 1[a] y / pi``.

    Args:
      divide_by: 'propensity', or 'model' to divide by p_a as in the paper's Algorithm 2, which is
        biased unless the item was drawn from p.

    Raises:
      ValueError: if ``divide_by`` is neither.
    """
    require("divide_by", divide_by, "'propensity' or 'model'", {"propensity", "model"}.__contains__)

    def coefficients(obs):
        weight = obs.propensity if divide_by == "propensity" else obs.p_chosen
        return obs.probs - obs.chosen * obs.reward / weight

    return Estimator("importance_weighted", coefficients, unbiased=True)


@memoized
def chosen_only() -> Estimator:
    """Move only the chosen item's row: ``c = 1[a] (1 - y / pi)`` (ORAG App. B.2)."""

    def coefficients(obs):
        return obs.chosen * (1.0 - obs.reward / obs.propensity)

    return Estimator("chosen_only", coefficients, unbiased=True)


@memoized
def full_information() -> Estimator:
    """Compute the exact gradient of the cross-entropy, averaged over the labels of the query."""

    def coefficients(obs):
        return obs.probs - obs.target

    return Estimator("full_information", coefficients, unbiased=True, bandit=False)


@memoized
def debiased(*, noise_rate: float) -> Estimator:
    """Debias the reward in Eq. (4) for label noise: ``(y - rho) / (1 - 2 rho)`` for y.

    The paper's noisy update (Eq. 10) has a bias of rho on every row (Eq. 12); this update is
    unbiased but has more variance.

    Args:
      noise_rate: rho, probability that a reward is flipped, in [0, 0.5).

    Raises:
      ValueError: if the rate is out of its range.
    """
    require("noise_rate", noise_rate, "in [0, 0.5)", lambda x: 0 <= x < 0.5)

    def coefficients(obs):
        reward = (obs.reward - noise_rate) / (1.0 - 2.0 * noise_rate)
        return obs.probs - obs.chosen * reward / obs.propensity

    return Estimator("debiased", coefficients, unbiased=True, noise_rate=noise_rate)


@memoized
def implicit_exploration(*, gamma: float = 0.1) -> Estimator:
    """Divide by ``pi + gamma`` in Eq. (4) (Neu 2015), which bounds c by 1 / gamma.

    Args:
      gamma: constant added to the propensity, > 0.

    Raises:
      ValueError: if gamma is not positive.
    """
    require("gamma", gamma, "> 0", lambda x: x > 0)

    def coefficients(obs):
        return obs.probs - obs.chosen * obs.reward / (obs.propensity + gamma)

    return Estimator("implicit_exploration", coefficients, unbiased=False)


@memoized
def clipped(*, floor: float = 0.1) -> Estimator:
    """Divide by ``max(pi, floor)`` in Eq. (4), unbiased if pi >= floor.

    Args:
      floor: smallest denominator, in (0, 1].

    Raises:
      ValueError: if the floor is out of its range.
    """
    require("floor", floor, "in (0, 1]", lambda x: 0 < x <= 1)

    def coefficients(obs):
        return obs.probs - obs.chosen * obs.reward / jnp.maximum(obs.propensity, floor)

    return Estimator("clipped", coefficients, unbiased=False)


@memoized
def bandit_likelihood(*, floor: float = 1e-6) -> Estimator:
    """Compute the gradient of ``-y log p_a - (1 - y) log(1 - p_a)``, without a propensity.

    ``c = (p - 1[a]) (y - (1 - y) p_a / (1 - p_a))``, for any y in [0, 1].

    Args:
      floor: lower bound of ``1 - p_a``, in (0, 1); keeps c finite after a confident failure.

    Raises:
      ValueError: if the floor is out of its range.
    """
    require("floor", floor, "in (0, 1)", lambda x: 0 < x < 1)

    def coefficients(obs):
        away = obs.probs - obs.chosen  # raises the chosen item
        odds = obs.p_chosen / jnp.maximum(1.0 - obs.p_chosen, floor)
        return away * (obs.reward - (1.0 - obs.reward) * odds)

    return Estimator("bandit_likelihood", coefficients, unbiased=False)


@memoized
def banditron() -> Estimator:
    """Estimate ``1[argmax] - 1[i*]`` without bias (Kakade, Shalev-Shwartz and Tewari 2008)."""

    def coefficients(obs):
        return obs.best - obs.chosen * obs.reward / obs.propensity

    return Estimator("banditron", coefficients, unbiased=False)


@memoized
def none() -> Estimator:
    """Return zero coefficients, for the frozen baseline."""
    return Estimator("none", lambda obs: jnp.zeros_like(obs.probs), unbiased=False)


def expected_coefficients(
    estimator: Estimator,
    probs: Float[Array, " I"],
    target: Int[Array, ""],
    *,
    propensity: Float[Array, " I"] | None = None,
    noise_rate: float | Float[Array, ""] = 0.0,
) -> Float[Array, " I"]:
    """Compute the exact mean of an estimator over ``a ~ propensity`` and the noisy reward.

    Costs 2 I evaluations; meant for checks and plots.

    Args:
      estimator: any estimator.
      probs: probabilities p of the model.
      target: right item i*.
      propensity: probabilities with which items are chosen; None: p.
      noise_rate: rho, probability that the reward is flipped.

    Returns:
      E[c] [I].
    """
    pi = probs if propensity is None else propensity
    n = probs.shape[0]
    ids = jnp.arange(n)
    best = (ids == jnp.argmax(probs)).astype(probs.dtype)
    right = (ids == target).astype(probs.dtype)

    def given(item, reward):
        chosen = (ids == item).astype(probs.dtype)
        obs = Observation(
            probs=probs,
            chosen=chosen,
            best=best,
            target=right,
            p_chosen=probs[item],
            propensity=pi[item],
            reward=reward,
        )
        chance = jnp.abs(1.0 - reward - right[item]) * (1 - 2 * noise_rate) + noise_rate
        c = pi[item] * chance * estimator.coefficients(obs)
        return jnp.where(pi[item] > 0, c, 0.0)  # items that are never chosen have weight 0

    both = jax.vmap(jax.vmap(given, (None, 0)), (0, None))
    return both(ids, jnp.array([0.0, 1.0], probs.dtype)).sum(axis=(0, 1))
