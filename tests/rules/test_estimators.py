"""Estimators against hand computation, derivatives, and expectations over all possible rounds."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.rules import estimators
from jaxret.rules.estimators import Observation, expected_coefficients
from jaxret.testing import quick_jit

PROBS = np.array([0.5, 0.3, 0.2])
TARGET = 1
FULL_INFORMATION = np.array([0.5, -0.7, 0.2])  # p - 1[i* = 1]
EPSILON_GREEDY = np.array([0.8, 0.1, 0.1])  # epsilon = 0.3; differs from the model's p
WEIGHTED = estimators.importance_weighted()
BY_MODEL = estimators.importance_weighted(divide_by="model")
ONE_ROW = estimators.chosen_only()
LIKELIHOOD = estimators.bandit_likelihood()
PERCEPTRON = estimators.banditron()
TEACHER, NONE = estimators.full_information(), estimators.none()


def name_of(x):
    return getattr(x, "name", "")


def a_round(item, reward, propensity, labels=(TARGET,)):
    ids = np.arange(3)
    return Observation(
        probs=jnp.asarray(PROBS, jnp.float32),
        chosen=jnp.asarray(ids == item, jnp.float32),
        best=jnp.asarray(ids == 0, jnp.float32),
        target=jnp.asarray(np.isin(ids, labels) / len(labels), jnp.float32),
        p_chosen=jnp.float32(PROBS[item]),
        propensity=jnp.float32(propensity),
        reward=jnp.float32(reward),
    )


def average(estimator, pi, labels=(TARGET,), noise_rate=0.0):
    """Compute the mean over every item and both bits."""
    mean = np.zeros(3)
    for item in range(3):
        for reward in (0, 1):
            chance = 1 - noise_rate if reward == (item in labels) else noise_rate
            c = estimator.coefficients(a_round(item, reward, pi[item], labels))
            mean += pi[item] * chance * np.asarray(c, np.float64)
    return mean


# Item 1 was chosen with propensity 0.4 (p is 0.3); coefficients for y = 1 and for y = 0.
BY_HAND = [
    (WEIGHTED, [0.5, 0.3 - 2.5, 0.2], [0.5, 0.3, 0.2]),
    (BY_MODEL, [0.5, 0.3 - 1 / 0.3, 0.2], [0.5, 0.3, 0.2]),
    (ONE_ROW, [0, -1.5, 0], [0, 1, 0]),
    (estimators.debiased(noise_rate=0.1), [0.5, 0.3 - 2.8125, 0.2], [0.5, 0.3 + 0.3125, 0.2]),
    (estimators.implicit_exploration(gamma=0.1), [0.5, 0.3 - 2.0, 0.2], [0.5, 0.3, 0.2]),
    (estimators.clipped(floor=0.5), [0.5, 0.3 - 2.0, 0.2], [0.5, 0.3, 0.2]),
    (estimators.clipped(floor=0.3), [0.5, 0.3 - 2.5, 0.2], [0.5, 0.3, 0.2]),
    (LIKELIHOOD, [0.5, -0.7, 0.2], [-1.5 / 7, 0.3, -0.6 / 7]),
    (PERCEPTRON, [1, -2.5, 0], [1, 0, 0]),
    (TEACHER, [0.5, -0.7, 0.2], [0.5, -0.7, 0.2]),
    (NONE, [0, 0, 0], [0, 0, 0]),
]


@pytest.mark.parametrize(("estimator", "after_success", "after_failure"), BY_HAND, ids=name_of)
def test_coefficients_are_those_worked_by_hand(estimator, after_success, after_failure):
    soft = 0.25 * np.array(after_success) + 0.75 * np.array(after_failure)  # each is linear in y
    for reward, expected in ((1.0, after_success), (0.0, after_failure), (0.25, soft)):
        got = estimator.coefficients(a_round(1, reward, propensity=0.4))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_the_exact_average_equals_the_sum_over_all_rounds():
    for estimator in (WEIGHTED, LIKELIHOOD):
        exact = quick_jit(partial(expected_coefficients, estimator, noise_rate=0.2))
        got = exact(np.float32(PROBS), TARGET, propensity=np.float32(EPSILON_GREEDY))
        expected = average(estimator, EPSILON_GREEDY, noise_rate=0.2)
        np.testing.assert_allclose(got, expected, atol=1e-6)


UNBIASED = [WEIGHTED, BY_MODEL, ONE_ROW, TEACHER, estimators.debiased(noise_rate=0.0)]
BIASED = [
    estimators.implicit_exploration(gamma=0.1),
    estimators.clipped(floor=0.4),
    LIKELIHOOD,
    PERCEPTRON,
    NONE,
]


@pytest.mark.parametrize("estimator", UNBIASED + BIASED, ids=name_of)
def test_unbiased_estimators_average_to_the_full_information_gradient(estimator):
    """Others say that they are biased, and are."""
    off = np.abs(average(estimator, PROBS) - FULL_INFORMATION).max()
    assert estimator.unbiased == (estimator in UNBIASED)
    assert off < 1e-6 if estimator.unbiased else off > 0.05


DEBIASED = estimators.debiased(noise_rate=0.2)
AVERAGES = {  # of an estimator, under propensities and further conditions
    "not drawn from the model": (WEIGHTED, EPSILON_GREEDY, {}, FULL_INFORMATION),
    "divided by p as written": (BY_MODEL, EPSILON_GREEDY, {}, [0.5, 0.3 - 0.1 / 0.3, 0.2]),
    "debiased": (DEBIASED, PROBS, {"noise_rate": 0.2}, FULL_INFORMATION),
    "debiased, off p": (DEBIASED, EPSILON_GREEDY, {"noise_rate": 0.2}, FULL_INFORMATION),
    "perceptron": (PERCEPTRON, EPSILON_GREEDY, {}, [1, -1, 0]),  # 1[argmax p] - 1[i*]
    "two right answers": (WEIGHTED, PROBS, {"labels": (1, 2)}, [0.5, -0.7, -0.8]),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages_are_those_of_the_theory(name):
    estimator, pi, conditions, expected = AVERAGES[name]
    atol = 1e-5 if estimator is DEBIASED else 1e-6
    np.testing.assert_allclose(average(estimator, pi, **conditions), expected, rtol=0, atol=atol)


def test_noisy_bits_put_the_papers_update_off_by_rho_on_every_row():  # Eq. (12)
    off = average(WEIGHTED, PROBS, noise_rate=0.2) - FULL_INFORMATION
    np.testing.assert_allclose(off, [-0.2, 0.2, -0.2], atol=1e-6)


def test_a_failure_of_which_the_model_was_certain_moves_nothing_to_infinity():
    certain = a_round(0, 0.0, propensity=1.0)._replace(
        probs=jnp.array([1.0, 0.0, 0.0]), p_chosen=jnp.float32(1.0)
    )
    got = estimators.bandit_likelihood(floor=1e-3).coefficients(certain)
    assert np.isfinite(got).all()


def test_implicit_exploration_bounds_the_step_of_the_least_likely_item():
    got = estimators.implicit_exploration(gamma=0.25).coefficients(a_round(1, 1.0, 1e-6))
    assert np.abs(got).max() <= 4.0
