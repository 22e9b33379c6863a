"""Checks of the theory: moments of estimators, and the growth of regret.

    Lemma 3.1      E[c] = p - 1[i*]                    for a ~ p and clean bits
    Eq. (12)       E[c] = p - 1[i*] + rho (2 1[i*] - 1)    the same with noisy labels
    Corollary 5.2  regret of order sqrt(T): log regret against log T has slope 1/2 at most

Letters: I items, S seeds, n draws or horizons.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.rules.estimators import Estimator, Observation, expected_coefficients
from jaxret.runtime.validate import require
from jaxret.types import PRNGKey


class Moments(NamedTuple):
    """Moments of an estimator's coefficients c over the chosen item and the noisy bit."""

    mean: Float[Array, " I"]  # E[c] [I]
    second: Float[Array, ""]  # E ||c||^2 []; times ||q / tau||^2 it is E ||G||_F^2
    bias: Float[Array, ""]  # || E[c] - (p - 1[i*]) || [], with the gradient of Lemma 3.1
    variance: Float[Array, ""]  # E || c - E[c] ||^2 []


class Sampled(NamedTuple):
    """Mean and standard error over independent draws, item by item."""

    mean: Float[Array, " I"]
    stderr: Float[Array, " I"]


class Slope(NamedTuple):
    """The exponent of ``regret ~ T^value``, with a 95 % interval over seeds."""

    value: float
    low: float
    high: float


def moments(
    estimator: Estimator,
    probs: Float[Array, " I"],
    target: Int[Array, ""],
    *,
    propensity: Float[Array, " I"] | None = None,
    noise_rate: float | Float[Array, ""] = 0.0,
) -> Moments:
    """Compute moments exactly, by enumeration: 6 I evaluations of the estimator.

    Use float64 (`jax.enable_x64`) for small probabilities.

    Args:
      estimator: estimator of the coefficients.
      probs: probabilities p of the model [I].
      target: the right item.
      propensity: probabilities from which the item is drawn [I]; None: p.
      noise_rate: probability that a bit is wrong.
    """
    average = partial(
        expected_coefficients,
        probs=probs,
        target=target,
        propensity=propensity,
        noise_rate=noise_rate,
    )
    mean = average(estimator)

    def squares_about(centre):
        def squared(obs):
            return (estimator.coefficients(obs) - centre) ** 2

        return average(estimator._replace(coefficients=squared)).sum()

    return Moments(
        mean=mean,
        second=squares_about(jnp.zeros_like(mean)),
        bias=jnp.linalg.norm(mean - probs.at[target].add(-1.0)),
        variance=squares_about(mean),
    )


def monte_carlo_coefficients(
    estimator: Estimator,
    probs: Float[Array, " I"],
    target: Int[Array, ""],
    key: PRNGKey,
    n: int,
    *,
    noise_rate: float = 0.0,
) -> Sampled:
    """Estimate E[c] from n draws of an item and its bit, with n I numbers in memory.

    Args:
      estimator: estimator of the coefficients.
      probs: probabilities from which the items are drawn [I].
      target: the right item.
      key: consumed.
      n: number of draws, >= 2.
      noise_rate: probability that a bit is wrong.

    Returns:
      Mean and standard error of each coefficient [I].

    Raises:
      ValueError: if n < 2.
    """
    require("n", n, ">= 2", lambda x: x >= 2)
    item_key, noise_key = jax.random.split(key)
    ids = jnp.arange(probs.shape[0])

    def mask(item):
        return (ids == item).astype(probs.dtype)

    def sample(item, turned):
        obs = Observation(
            probs=probs,
            chosen=mask(item),
            best=mask(jnp.argmax(probs)),
            target=mask(target),
            p_chosen=probs[item],
            propensity=probs[item],
            reward=((item == target) ^ turned).astype(probs.dtype),
        )
        return estimator.coefficients(obs)

    items = jax.random.categorical(item_key, jnp.log(probs), shape=(n,))
    turned = jax.random.bernoulli(noise_key, noise_rate, (n,))
    c = jax.vmap(sample)(items, turned)
    return Sampled(mean=c.mean(axis=0), stderr=c.std(axis=0, ddof=1) / jnp.sqrt(n))


def slope(
    horizons: Int[np.ndarray, " n"],
    regrets: Float[np.ndarray, "S n"],
    *,
    resamples: int = 2000,
) -> Slope:
    """Fit log mean regret on log T by least squares, with an interval by resampling whole seeds.

    Regret is averaged over seeds before taking logarithms, because the regret of one seed may be
    negative. The horizons of a seed are resampled together, because they share rounds.

    Args:
      horizons: T, increasing [n].
      regrets: regret of each seed at each horizon [S, n], with positive means over seeds.
      resamples: number of bootstrap resamples.

    Returns:
      The exponent and its 95 % interval.

    Raises:
      ValueError: if a mean regret is not positive, over the seeds or in a resample.
    """
    regrets = np.asarray(regrets, np.float64)
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(regrets), (resamples, len(regrets)))
    means = np.concatenate([regrets.mean(axis=0)[None], regrets[picks].mean(axis=1)])
    if not (means > 0).all():
        raise ValueError(
            "mean regret must be positive at every horizon, in every resample of the seeds;"
            f" its least is {means.min():.3g}: use longer horizons or more seeds"
        )
    x = np.log(np.asarray(horizons, np.float64))
    x = x - x.mean()
    slopes = np.log(means) @ x / (x @ x)
    low, high = np.quantile(slopes[1:], [0.025, 0.975])
    return Slope(value=float(slopes[0]), low=float(low), high=float(high))
