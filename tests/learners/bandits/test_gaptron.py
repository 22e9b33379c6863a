"""Gaptron: its gap map, its gradient by enumeration, and the inequality that it was made for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.gaptron import gap_map, gaptron, successes_weighted
from jaxret.learners.rank_one import coefficients
from jaxret.testing import check_learner
from jaxret.types import Choice, Feedback

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(gaptron(start=start))


def softmax(z):
    weights = np.exp(z - z.max())
    return weights / weights.sum()


def expected_chances(z, gamma):
    """The best, and with probability e any of those that are there."""
    p, here = softmax(z), np.isfinite(z)
    share = max(1 - p.max() * (p.max() >= 0.5), gamma)
    return (1 - share) * (np.arange(len(z)) == p.argmax()) + share * here / here.sum()


@pytest.mark.parametrize(
    "z", [[4.0, 0, -np.inf, 1], [0.3, 0.1, -np.inf, 0.2], [20.0, 0, 0, 0], [-np.inf, 0, 0, -9]]
)
def test_it_explores_as_much_as_the_model_is_unsure(z):
    policy = gap_map(gamma=0.05)
    with jax.enable_x64(True):
        logits = jnp.asarray(z)
        expected = expected_chances(np.array(z), 0.05)
        np.testing.assert_allclose(policy.chances(logits), expected, atol=1e-12)
        keys = jax.random.split(jax.random.key(0), 3000)
        slates = jax.jit(jax.vmap(policy.show, (0, None, None)), static_argnums=2)(
            keys, logits, None
        )
    shown = np.bincount(slates.items[:, 0], minlength=4) / 3000
    np.testing.assert_allclose(shown, expected, atol=4 * np.sqrt(0.25 / 3000))
    np.testing.assert_allclose(slates.propensity[:, 0], expected[slates.items[:, 0]], atol=1e-12)


@pytest.mark.parametrize("labels", [[2], [0], [1, 3]])
def test_its_step_is_on_average_the_gradient_of_the_logistic_loss(labels):
    """By enumeration of the tool; of several right tools it is the sum of their losses."""
    z = np.array([0.4, 1.0, -0.3, 0.2])
    pi, p, mean = expected_chances(z, 0.3), softmax(z), np.zeros(4)
    with jax.enable_x64(True):
        for a in range(4):
            choice = Choice(jnp.asarray(a), jnp.asarray(pi[a]))
            feedback = Feedback(jnp.asarray(float(a in labels)))
            c = coefficients(successes_weighted(), jnp.asarray(z), choice, feedback, None)
            mean += pi[a] * np.asarray(c)
    expected = len(labels) * p - np.isin(np.arange(4), labels)
    np.testing.assert_allclose(mean, expected, atol=1e-12)


def test_a_failure_teaches_nothing(rounds, taught):
    world = rounds()
    world.rewards[:] = 0
    states = taught(gaptron(tau=0.1, eta=0.01), world)
    np.testing.assert_allclose(states[-1].theta, states[0].theta, atol=1e-14)


@pytest.mark.parametrize("k", [3, 20])
def test_the_surrogate_gap_pays_for_exploration(k):
    """With eta = gamma ln 2 / (2 K^2), of the loss in base 2 and of queries of length 1:

    mistakes expected + eta/2 E|g|^2 <= loss + gamma, whatever the model and the right tool.
    """
    gamma = 0.05
    eta = gamma * np.log(2) / (2 * k**2)
    chances = jax.jit(jax.vmap(gap_map(gamma=gamma).chances))
    z = RNG.normal(size=(3000, k)) * 10 ** RNG.uniform(-2, 1.2, size=(3000, 1))
    pis = np.asarray(chances(jnp.asarray(z, jnp.float32)), np.float64)
    worst = -np.inf
    for logits, pi in zip(z, pis, strict=True):
        p = softmax(logits)
        for right in (p.argmax(), p.argmin(), 0):
            loss = -np.log2(max(p[right], 1e-300))
            slope2 = (p @ p - 2 * p[right] + 1) / np.log(2) ** 2
            worst = max(worst, 1 - pi[right] + eta / 2 * slope2 / pi[right] - loss - gamma)
    assert -0.1 < worst <= 1e-6


@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_a_share_outside_its_range_is_refused(gamma):
    with pytest.raises(ValueError, match=rf"gamma must be in \(0, 1\], got {gamma}"):
        gaptron(gamma=gamma)
