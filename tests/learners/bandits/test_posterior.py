"""Bayesian linear regression against the closed form of all observations at once."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.learners.bandits import posterior

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(40, 5)), RNG.normal(size=40)
FIRST, RIDGE, SHAPE, RATE = RNG.normal(size=5), 0.6, 2.5, 1.5


def learnt(n):
    """The posterior of the first n observations, in float64."""
    known = posterior.prior(jnp.asarray(FIRST), RIDGE, SHAPE, RATE)
    step = jax.jit(posterior.observe)
    for x, y in zip(X[:n], Y[:n], strict=True):
        known = step(known, jnp.asarray(x), jnp.asarray(y))
    return known


def direct(n):
    """Mean, precision, shape and rate by the textbook."""
    x, y = X[:n], Y[:n]
    precision = RIDGE * np.eye(5) + x.T @ x
    mean = np.linalg.solve(precision, RIDGE * FIRST + x.T @ y)
    rate = RATE + 0.5 * (y @ y + RIDGE * FIRST @ FIRST - mean @ precision @ mean)
    return mean, precision, SHAPE + n / 2, rate


def test_it_is_the_posterior_of_all_observations_at_once():
    with jax.enable_x64(True):
        for n in (0, 1, 7, 40):
            known, (mean, precision, shape, rate) = learnt(n), direct(n)
            np.testing.assert_allclose(known.mean, mean, atol=1e-12)
            covariance = known.root @ known.root.T
            np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-12)
            np.testing.assert_allclose([known.shape, known.rate], [shape, rate], rtol=1e-12)


def test_deviations_are_those_of_the_inverted_matrix():
    with jax.enable_x64(True):
        got = posterior.deviations(learnt(7), jnp.asarray(X[:4]))
    inverse = np.linalg.inv(direct(7)[1])
    expected = np.sqrt(np.einsum("ni,ij,nj->n", X[:4], inverse, X[:4]))
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_draws_have_the_mean_and_covariance_that_they_should():
    n, scale = 20_000, 0.7
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), n)
        drawn = np.asarray(
            jax.jit(jax.vmap(posterior.draw, (None, 0, None)))(learnt(7), keys, scale)
        )
    mean, precision, *_ = direct(7)
    covariance = scale**2 * np.linalg.inv(precision)
    error = np.sqrt(np.diag(covariance) / n)
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - mean), 4.5 * error)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=5 * covariance.max() / n**0.5)


def test_the_noise_is_drawn_from_its_inverse_gamma():
    n = 20_000
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(1), n)
        drawn = jax.jit(jax.vmap(posterior.draw_noise, (None, 0)))(learnt(7), keys)
    precisions = np.asarray(drawn) ** -2  # gamma, with mean shape / rate and variance / rate again
    _, _, shape, rate = direct(7)
    np.testing.assert_allclose(precisions.mean(), shape / rate, atol=4 * shape**0.5 / rate / n**0.5)
    np.testing.assert_allclose(precisions.var(), shape / rate**2, rtol=0.1)


def test_in_float32_the_covariance_stays_positive_for_thousands_of_rounds():
    x = jnp.asarray(RNG.normal(size=(5, 64)), jnp.float32)
    known = posterior.prior(jnp.zeros(64), 1e-3)

    def step(i, known):
        return posterior.observe(known, x[i % 5], jnp.float32(1))

    known = jax.jit(lambda p: jax.lax.fori_loop(0, 5000, step, p))(known)
    inverse = np.linalg.inv(1e-3 * np.eye(64) + 1000 * np.float64(x).T @ np.float64(x))
    expected = np.sqrt(np.einsum("ni,ij,nj->n", x, inverse, x))
    np.testing.assert_allclose(posterior.deviations(known, x), expected, rtol=0.05)
    np.testing.assert_allclose(x @ known.mean, np.ones(5), atol=1e-3)
