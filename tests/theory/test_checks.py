from functools import partial

import jax
import numpy as np
import pytest

from jaxret.rules import estimators
from jaxret.testing import quick_jit
from jaxret.theory.checks import moments, monte_carlo_coefficients, slope

P = np.array([0.5, 0.3, 0.15, 0.05])
DEBIASED = {rho: estimators.debiased(noise_rate=rho) for rho in (0.1, 0.4)}
MOMENTS = jax.jit(moments, static_argnames="estimator")


def enumerate_eq_4(p, right, noise_rate, read=lambda y: y):
    """Compute E[c] and E||c||^2 of Eq. (4) over item and bit; ``read`` maps the bit."""
    mean, second = np.zeros_like(p), 0.0
    for a in range(len(p)):
        for flip in (0, 1):
            chance = p[a] * (noise_rate if flip else 1 - noise_rate)
            c = p.copy()
            c[a] -= read((a == right) ^ flip) / p[a]
            mean, second = mean + chance * c, second + chance * (c**2).sum()
    return mean, second


@pytest.mark.parametrize("right", range(4))
@pytest.mark.parametrize("rho", [0.0, 0.1, 0.5])
def test_the_moments_of_eq_4_are_those_of_the_theory(right, rho):
    mean, second = enumerate_eq_4(P, right, rho)
    is_right = np.arange(4) == right
    q, inverse = P[right], (1 / P).sum()
    np.testing.assert_allclose(mean, P - is_right + rho * (2.0 * is_right - 1), atol=1e-12)
    m = np.where(is_right, 1 - rho, rho)
    np.testing.assert_allclose(second, (P**2 - 2 * P * m + m / P).sum(), rtol=1e-12)
    assert second <= 2 * (1 / q - 2 * q + 1 + rho * inverse)  # Theorem B.2
    if rho == 0:
        np.testing.assert_allclose(second, (P**2).sum() - 2 * q + 1 / q, rtol=1e-12)
        assert second <= 1 / q - 2 * q + 1  # Theorem 5.1
    got = MOMENTS(estimators.importance_weighted(), P, right, noise_rate=rho)
    np.testing.assert_allclose(got.mean, mean, atol=1e-6)
    np.testing.assert_allclose(got.second, second, rtol=1e-5)


@pytest.mark.parametrize("right", range(4))
@pytest.mark.parametrize("rho", DEBIASED)
def test_the_debiased_bit_has_the_mean_of_the_clean_one_and_more_variance(right, rho):
    mean, second = enumerate_eq_4(P, right, rho, lambda y: (y - rho) / (1 - 2 * rho))
    q, v = P[right], rho * (1 - rho) / (1 - 2 * rho) ** 2
    np.testing.assert_allclose(mean, P - (np.arange(4) == right), atol=1e-12)
    np.testing.assert_allclose(second, (P**2).sum() - 2 * q + 1 / q + v * (1 / P).sum(), rtol=1e-12)
    got = MOMENTS(DEBIASED[rho], P, right, noise_rate=rho)
    np.testing.assert_allclose(got.mean, mean, atol=1e-5)
    np.testing.assert_allclose(got.second, second, rtol=1e-5)


@pytest.mark.parametrize("right", range(4))
def test_moving_one_row_varies_less_than_moving_all(right):
    got = MOMENTS(estimators.chosen_only(), P, right)
    np.testing.assert_allclose(got.second, 1 / P[right] - 1, rtol=1e-5)
    assert got.second < enumerate_eq_4(P, right, 0.0)[1]


@pytest.mark.parametrize(
    ("estimator", "rho", "bias"),
    [
        (estimators.importance_weighted(), 0.0, 0.0),  # Lemma 3.1
        (estimators.chosen_only(), 0.0, 0.0),
        (estimators.importance_weighted(), 0.2, 0.2 * np.array([1.0, -1, -1, -1])),
        (estimators.debiased(noise_rate=0.2), 0.2, 0.0),
    ],
)
def test_samples_have_the_bias_of_the_theory(estimator, rho, bias):
    sample = quick_jit(partial(monte_carlo_coefficients, estimator, n=40_000))
    got = sample(P, 0, key=jax.random.key(1), noise_rate=rho)
    off = np.asarray(got.mean) - (P - (np.arange(4) == 0))
    assert (np.abs(off - bias) <= 4 * np.asarray(got.stderr) + 1e-6).all()
    assert rho or 0 < got.stderr.max() < 0.02


def test_the_slope_of_a_square_root_is_a_half():
    horizons = np.array([100, 200, 400, 800, 1600])
    exact = 7.0 * np.sqrt(horizons)
    got = slope(horizons, np.tile(exact, (5, 1)))
    np.testing.assert_allclose(got, [0.5, 0.5, 0.5], atol=1e-12)


def test_the_interval_of_the_slope_covers_it_about_as_often_as_it_says():
    horizons = np.array([100, 200, 400, 800, 1600])
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(100):
        seeds = rng.lognormal(0.0, 0.3, (30, 5)) * np.sqrt(horizons)
        got = slope(horizons, seeds, resamples=400)
        hits.append(got.low <= 0.5 <= got.high)
    assert 0.85 <= np.mean(hits) <= 0.99


def test_the_interval_of_the_slope_is_that_of_95_per_cent():
    """Use the delta method and a half-width of 1.96 standard errors, which differs from 1.64."""
    horizons, seeds = np.array([100, 200, 400, 800]), 400
    regrets = np.random.default_rng(1).normal(1.0, 0.2, (seeds, 4)) * np.sqrt(horizons)
    got = slope(horizons, regrets, resamples=8_000)
    x = np.log(horizons) - np.log(horizons).mean()
    influence = (regrets / regrets.mean(axis=0)) @ x / (x @ x)  # each seed's influence on the slope
    error = influence.std() / np.sqrt(seeds)
    assert (got.high - got.low) / (2 * error) == pytest.approx(1.96, rel=0.05)


def test_a_negative_mean_regret_has_no_slope():
    with pytest.raises(ValueError, match="mean regret must be positive"):
        slope(np.array([10, 20]), np.array([[1.0, -2.0], [1.0, 1.0]]))
