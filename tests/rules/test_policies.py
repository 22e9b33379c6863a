"""Frequencies of many samples (fixed seed) against enumerated probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.rules import policies
from tests.problems import enumerated_inclusion

DRAWS = 20_000
LOGITS = jnp.array([0.3, -jnp.inf, 1.2, 0.0, -0.7])
P = np.exp([0.3, -np.inf, 1.2, 0.0, -0.7])
P = P / P.sum()


def many_slates(rule, logits=LOGITS):
    """Sample items [n, k] and propensities [n, k] of n independent slates."""
    keys = jax.random.split(jax.random.key(7), DRAWS)
    slates = jax.jit(jax.vmap(lambda key: rule.show(key, logits, None)))(keys)
    return np.asarray(slates.items), np.asarray(slates.propensity, np.float64)


def inclusion(items, n=5):
    """Compute the share of slates that contain each item, and the standard error of this share."""
    inside = (items[:, :, None] == np.arange(n)).any(axis=1)
    return inside.mean(axis=0), inside.std(axis=0) / np.sqrt(len(items))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_softmax_draws_items_as_often_as_their_probability_says(temperature):
    p = P ** (1 / temperature) / (P ** (1 / temperature)).sum()
    items, propensity = many_slates(policies.softmax(temperature=temperature))
    here = p > 0
    counts = np.bincount(items[:, 0], minlength=5)
    chi_square = ((counts - DRAWS * p)[here] ** 2 / (DRAWS * p[here])).sum()
    assert chi_square < 16.27  # 99.9th percentile with 3 degrees of freedom
    assert counts[1] == 0
    np.testing.assert_allclose(propensity[:, 0], p[items[:, 0]], rtol=1e-5)


@pytest.mark.parametrize("k", [2, 3])
def test_softmax_slates_are_draws_without_replacement(k):
    items, _ = many_slates(policies.softmax(k=k))
    got, error = inclusion(items)
    expected = enumerated_inclusion(P, k)
    assert (np.abs(got - expected) <= 4 * error).all()
    assert (np.diff(np.sort(items, axis=1), axis=1) > 0).all()  # no item occurs twice


@pytest.mark.parametrize("k", [2, 3])
def test_the_weight_of_a_slate_item_averages_to_one_for_every_item(k):
    items, propensity = many_slates(policies.softmax(k=k))
    weights = ((items[:, :, None] == np.arange(5)) / propensity[:, :, None]).sum(axis=1)
    error = weights.std(axis=0) / np.sqrt(DRAWS)
    here = P > 0
    assert (np.abs(weights.mean(axis=0) - 1)[here] <= 4 * error[here]).all()
    assert (error[here] < 0.03).all()  # so that the test above has power


@pytest.mark.parametrize(("k", "expected"), [(1, [2]), (3, [2, 0, 3])])
def test_greedy_shows_the_best_available_items_in_order_and_with_certainty(k, expected):
    slate = policies.greedy(k=k).show(jax.random.key(0), LOGITS, None)
    assert slate.items.tolist() == expected
    assert slate.propensity.tolist() == [1.0] * k


@pytest.mark.parametrize(("epsilon", "k"), [(0.3, 1), (0.6, 2), (1.0, 2), (0.0, 2)])
def test_epsilon_greedy_shows_items_as_often_as_its_propensities_say(epsilon, k):
    items, propensity = many_slates(policies.epsilon_greedy(epsilon=epsilon, k=k))
    got, error = inclusion(items)
    best = np.isin(np.arange(5), np.argsort(-P)[:k])
    expected = ((1 - epsilon) * best + epsilon * k / 4) * (P > 0)  # 4 items are available
    assert (np.abs(got - expected) <= 4 * error + 1e-9).all()
    np.testing.assert_allclose(propensity, expected[items], rtol=1e-6)
