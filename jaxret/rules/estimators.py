"""What one bit of feedback says about the gradient.

Every rule moves the item embeddings by a rank-one step, ``Theta <- Theta - eta * outer(c, q)``,
so an estimator returns the coefficients ``c [I]`` and never a gradient [I, d]. With the
model's probabilities ``p``, the chosen item ``a``, its propensity ``pi`` and the bit ``y``:

    importance_weighted   c = p - 1[a] y / pi              unbiased   ORAG Eq. (4)
    chosen_only           c = 1[a] (1 - y / pi)            unbiased   ORAG App. B.2
    full_information      c = p - 1[i*]                    the gradient itself, not a bandit
    debiased              Eq. (4) with (y - rho)/(1 - 2 rho) for y: unbiased under noise  (ours)
    implicit_exploration  Eq. (4) with pi + gamma for pi   biased, low variance           (ours)
    clipped               Eq. (4) with max(pi, floor)      biased, low variance           (ours)
    bandit_likelihood     c = grad of -log P(y | a)        biased, low variance           (ours)
    banditron             c = 1[argmax p] - 1[a] y / pi    unbiased for the perceptron step

'Unbiased' means: averaged over ``a ~ pi`` it equals ``p - 1[i*]``, the gradient of
``-log p_{i*}`` (Lemma 3.1), provided that ``p = pi`` for `chosen_only` and nothing more for
the others. With L right answers and success = 'the chosen item is one of them', Eq. (4) has
the mean ``p - 1[labels]``, a loss that for L > 1 is unbounded below: keep the rows on a ball
or sphere, or take an estimator that stays sensible (bandit_likelihood, chosen_only).

Letters: I items, p [I], c [I].
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require


class Observation(NamedTuple):
    """One observed round, as an estimator sees it; items as masks, so that rules read as formulas.

    ``target`` is for `full_information` alone: a rule that learns from bits is not given it.
    """

    probs: Float[Array, " I"]  # p, zero where an item is absent
    chosen: Float[Array, " I"]  # 1[i = a]
    best: Float[Array, " I"]  # 1[i = argmax p]
    target: Float[Array, " I"] | None  # 1[labels] / L over those available; None for a bandit
    p_chosen: Float[Array, ""]  # p_a
    propensity: Float[Array, ""]  # pi, the probability with which a was really chosen
    reward: Float[Array, ""]  # y


class Coefficients(Protocol):
    """Maps one observed round to the coefficient of every item.

    Elementwise in the items, so that it serves one device and a slice of the catalogue;
    zero where ``probs`` and ``chosen`` are.
    """

    def __call__(self, obs: Observation) -> Float[Array, " I"]: ...


class Estimator(NamedTuple):
    """A named coefficient function, and what it claims."""

    name: str
    coefficients: Coefficients
    unbiased: bool  # Lemma 3.1 holds when a ~ p
    bandit: bool = True  # reads the bit only, never the target
    noise_rate: float | Float[Array, ""] = 0.0  # for which ``unbiased`` is claimed


@memoized
def importance_weighted(*, divide_by: str = "propensity") -> Estimator:
    """ORAG Eq. (4): every item pays ``p_i``, the chosen one is repaid ``y / pi``.

    Args:
      divide_by: 'propensity', or 'model' to divide by p_a as the paper writes Algorithm 2, which
        is biased as soon as the item was not drawn from p.
    """
    require("divide_by", divide_by, "'propensity' or 'model'", {"propensity", "model"}.__contains__)

    def coefficients(obs):
        weight = obs.propensity if divide_by == "propensity" else obs.p_chosen
        return obs.probs - obs.chosen * obs.reward / weight

    return Estimator("importance_weighted", coefficients, unbiased=True)


@memoized
def chosen_only() -> Estimator:
    """ORAG App. B.2: one row moves a round, whatever the size of the catalogue."""

    def coefficients(obs):
        return obs.chosen * (1.0 - obs.reward / obs.propensity)

    return Estimator("chosen_only", coefficients, unbiased=True)


@memoized
def full_information() -> Estimator:
    """The gradient of the cross-entropy averaged over the labels: what a teacher would allow."""

    def coefficients(obs):
        return obs.probs - obs.target

    return Estimator("full_information", coefficients, unbiased=True, bandit=False)


@memoized
def debiased(*, noise_rate: float) -> Estimator:
    """Eq. (4) with the bit put right on average: ``(y - rho) / (1 - 2 rho)``.

    The paper's noisy update (Eq. 10) is off by rho on every row (Eq. 12); this one is off by
    nothing, at the price of more variance.

    Args:
      noise_rate: rho, in [0, 0.5).
    """
    require("noise_rate", noise_rate, "in [0, 0.5)", lambda x: 0 <= x < 0.5)

    def coefficients(obs):
        reward = (obs.reward - noise_rate) / (1.0 - 2.0 * noise_rate)
        return obs.probs - obs.chosen * reward / obs.propensity

    return Estimator("debiased", coefficients, unbiased=True, noise_rate=noise_rate)


@memoized
def implicit_exploration(*, gamma: float = 0.1) -> Estimator:
    """Eq. (4) with ``pi + gamma`` below the line (Neu 2015): no step exceeds 1 / gamma.

    Args:
      gamma: > 0.
    """
    require("gamma", gamma, "> 0", lambda x: x > 0)

    def coefficients(obs):
        return obs.probs - obs.chosen * obs.reward / (obs.propensity + gamma)

    return Estimator("implicit_exploration", coefficients, unbiased=False)


@memoized
def clipped(*, floor: float = 0.1) -> Estimator:
    """Eq. (4) with ``max(pi, floor)`` below the line: exact where pi >= floor.

    Args:
      floor: in (0, 1].
    """
    require("floor", floor, "in (0, 1]", lambda x: 0 < x <= 1)

    def coefficients(obs):
        return obs.probs - obs.chosen * obs.reward / jnp.maximum(obs.propensity, floor)

    return Estimator("clipped", coefficients, unbiased=False)


@memoized
def bandit_likelihood(*, floor: float = 1e-6) -> Estimator:
    """Gradient of ``-y log p_a - (1 - y) log(1 - p_a)``: no division by a propensity.

    ``c = (p - 1[a]) (y - (1 - y) p_a / (1 - p_a))``, for a bit or for any y in [0, 1].

    Args:
      floor: lower bound of ``1 - p_a``, in (0, 1); keeps a confident failure finite.
    """
    require("floor", floor, "in (0, 1)", lambda x: 0 < x < 1)

    def coefficients(obs):
        away = obs.probs - obs.chosen  # raises the chosen item
        odds = obs.p_chosen / jnp.maximum(1.0 - obs.p_chosen, floor)
        return away * (obs.reward - (1.0 - obs.reward) * odds)

    return Estimator("bandit_likelihood", coefficients, unbiased=False)


@memoized
def banditron() -> Estimator:
    """Kakade, Shalev-Shwartz and Tewari (2008): unbiased for ``1[argmax] - 1[i*]``."""

    def coefficients(obs):
        return obs.best - obs.chosen * obs.reward / obs.propensity

    return Estimator("banditron", coefficients, unbiased=False)


@memoized
def none() -> Estimator:
    """Learns nothing: the frozen baseline."""
    return Estimator("none", lambda obs: jnp.zeros_like(obs.probs), unbiased=False)


def expected_coefficients(
    estimator: Estimator,
    probs: Float[Array, " I"],
    target: Int[Array, ""],
    *,
    propensity: Float[Array, " I"] | None = None,
    noise_rate: float | Float[Array, ""] = 0.0,
) -> Float[Array, " I"]:
    """Averages an estimator exactly over ``a ~ propensity`` and the noisy bit.

    Costs 2 I evaluations: for checks and plots, not for streams.

    Args:
      estimator: any of the above.
      probs: the model's p.
      target: the right item i*.
      propensity: how items are really chosen; None means by p.
      noise_rate: rho; the bit is wrong with this probability.

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
        return jnp.where(pi[item] > 0, c, 0.0)  # an item that is never chosen weighs nothing

    both = jax.vmap(jax.vmap(given, (None, 0)), (0, None))
    return both(ids, jnp.array([0.0, 1.0], probs.dtype)).sum(axis=(0, 1))


REGISTRY = {
    f.__name__: f
    for f in (
        importance_weighted,
        chosen_only,
        full_information,
        debiased,
        implicit_exploration,
        clipped,
        bandit_likelihood,
        banditron,
        none,
    )
}
