"""Inverse-gap weighting: its formulas item by item, and the inequality that it was made for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.inverse_gap import drawn, inverse_gap

RNG = np.random.default_rng(0)
HERE = np.array([True, False, True, True, True, True])


def weights(means, gamma_over_k, reweighted=False, available=None):
    here = np.ones(len(means), bool) if available is None else available
    with jax.enable_x64(True):
        values = jnp.asarray(means), jnp.asarray(here), gamma_over_k
        return np.asarray(inverse_gap(*values, reweighted=reweighted))


def by_hand(losses, gamma):
    """Algorithm 1 of SquareCB and of FastCB, in losses, one action after the other."""
    k, best = len(losses), int(np.argmin(losses))
    square, fast = np.zeros(k), np.zeros(k)
    for a in range(k):
        if a != best:
            gap = losses[a] - losses[best]
            square[a] = 1 / (k + gamma * gap)
            fast[a] = losses[best] / (k * losses[best] + gamma * gap)
    square[best], fast[best] = 1 - square.sum(), 1 - fast.sum()
    return square, fast


def test_chances_are_those_of_the_papers():
    for _ in range(5):
        means = RNG.uniform(size=6)
        square, fast = by_hand(1 - means[HERE], gamma=5 * 40.0)
        for expected, reweighted in [(square, False), (fast, True)]:
            got = weights(means, 40.0, reweighted, HERE)
            np.testing.assert_allclose(got[HERE], expected, atol=1e-14)
            assert got[1] == 0  # absent
            np.testing.assert_allclose(got.sum(), 1, atol=1e-14)
            assert got.max() >= 1 / 5


@pytest.mark.parametrize("gamma", [3.0, 100.0])
def test_the_regret_of_a_round_is_bounded_by_the_square_loss(gamma):
    """Foster and Rakhlin (2020), Lemma 3: for every f*, regret <= 2 K/gamma + gamma/4 loss."""
    worst = -np.inf
    for _ in range(2000):
        means, truth = RNG.uniform(size=(2, 6)) ** RNG.uniform(0.2, 5)
        p = weights_fast(means, gamma / 6)
        regret = truth.max() - p @ truth
        worst = max(worst, regret - gamma / 4 * p @ (means - truth) ** 2)
    assert 0 < worst <= 2 * 6 / gamma


weights_fast = jax.jit(lambda means, g: inverse_gap(means, jnp.ones(6, bool), g))


def test_reweighting_is_a_larger_gamma_where_the_best_hardly_fails():
    means = np.array([0.9, 0.5, 0.7])
    np.testing.assert_allclose(weights(means, 5.0, True), weights(means, 50.0), atol=1e-14)


@pytest.mark.parametrize("reweighted", [False, True])
def test_of_equals_each_is_shown_alike(reweighted):
    for mean in (0.0, 0.3, 1.0):
        np.testing.assert_allclose(weights([mean] * 4, 50.0, reweighted), [0.25] * 4, atol=1e-12)


def test_a_best_tool_that_never_fails_is_shown_alone():
    got = weights([0.5, 1.0, 0.2], 50.0, True)
    np.testing.assert_allclose(got, [0, 1, 0], atol=1e-6)


def test_draws_have_their_chances_and_say_them():
    chances = jnp.array([0.1, 0.0, 0.6, 0.3])
    slates = jax.vmap(drawn, (0, None))(jax.random.split(jax.random.key(0), 5000), chances)
    shown = np.bincount(slates.items[:, 0], minlength=4) / 5000
    np.testing.assert_allclose(shown, chances, atol=4 * np.sqrt(0.24 / 5000))
    assert shown[1] == 0
    np.testing.assert_array_equal(slates.propensity, chances[slates.items])
