"""Estimators against hand computation, derivatives, and expectations over all possible rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.rules import estimators
from jaxret.rules.estimators import Observation, expected_coefficients

PROBS = np.array([0.5, 0.3, 0.2])
TARGET = 1
FULL_INFORMATION = np.array([0.5, -0.7, 0.2])  # p - 1[i* = 1]
EPSILON_GREEDY = np.array([0.8, 0.1, 0.1])  # epsilon = 0.3; differs from the model's p


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
    (estimators.importance_weighted(), [0.5, 0.3 - 2.5, 0.2], [0.5, 0.3, 0.2]),
    (
        estimators.importance_weighted(divide_by="model"),
        [0.5, 0.3 - 1 / 0.3, 0.2],
        [0.5, 0.3, 0.2],
    ),
    (estimators.chosen_only(), [0, -1.5, 0], [0, 1, 0]),
    (estimators.debiased(noise_rate=0.1), [0.5, 0.3 - 2.8125, 0.2], [0.5, 0.3 + 0.3125, 0.2]),
    (estimators.implicit_exploration(gamma=0.1), [0.5, 0.3 - 2.0, 0.2], [0.5, 0.3, 0.2]),
    (estimators.clipped(floor=0.5), [0.5, 0.3 - 2.0, 0.2], [0.5, 0.3, 0.2]),
    (estimators.clipped(floor=0.3), [0.5, 0.3 - 2.5, 0.2], [0.5, 0.3, 0.2]),
    (estimators.bandit_likelihood(), [0.5, -0.7, 0.2], [-1.5 / 7, 0.3, -0.6 / 7]),
    (estimators.banditron(), [1, -2.5, 0], [1, 0, 0]),
    (estimators.full_information(), [0.5, -0.7, 0.2], [0.5, -0.7, 0.2]),
    (estimators.none(), [0, 0, 0], [0, 0, 0]),
]


@pytest.mark.parametrize(
    ("estimator", "after_success", "after_failure"), BY_HAND, ids=lambda x: getattr(x, "name", "")
)
def test_coefficients_are_those_worked_by_hand(estimator, after_success, after_failure):
    soft = 0.25 * np.array(after_success) + 0.75 * np.array(after_failure)  # each is linear in y
    for reward, expected in ((1.0, after_success), (0.0, after_failure), (0.25, soft)):
        got = estimator.coefficients(a_round(1, reward, propensity=0.4))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_the_exact_average_equals_the_sum_over_all_rounds():
    for estimator in (estimators.importance_weighted(), estimators.bandit_likelihood()):
        got = expected_coefficients(
            estimator,
            jnp.asarray(PROBS),
            jnp.asarray(TARGET),
            propensity=jnp.asarray(EPSILON_GREEDY),
            noise_rate=0.2,
        )
        expected = average(estimator, EPSILON_GREEDY, noise_rate=0.2)
        np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize(
    "estimator",
    [
        estimators.importance_weighted(),
        estimators.importance_weighted(divide_by="model"),
        estimators.chosen_only(),
        estimators.full_information(),
        estimators.debiased(noise_rate=0.0),
    ],
    ids=lambda e: e.name,
)
def test_unbiased_estimators_average_to_the_full_information_gradient(estimator):
    assert estimator.unbiased
    np.testing.assert_allclose(average(estimator, PROBS), FULL_INFORMATION, atol=1e-6)


@pytest.mark.parametrize(
    "estimator",
    [
        estimators.implicit_exploration(gamma=0.1),
        estimators.clipped(floor=0.4),
        estimators.bandit_likelihood(),
        estimators.banditron(),
        estimators.none(),
    ],
    ids=lambda e: e.name,
)
def test_biased_estimators_say_so(estimator):
    assert not estimator.unbiased
    assert np.abs(average(estimator, PROBS) - FULL_INFORMATION).max() > 0.05


def test_importance_weighting_stays_unbiased_when_items_are_not_drawn_from_the_model():
    right = average(estimators.importance_weighted(), EPSILON_GREEDY)
    np.testing.assert_allclose(right, FULL_INFORMATION, atol=1e-6)
    as_written = average(estimators.importance_weighted(divide_by="model"), EPSILON_GREEDY)
    np.testing.assert_allclose(as_written, [0.5, 0.3 - 0.1 / 0.3, 0.2], atol=1e-6)


def test_noisy_bits_put_the_papers_update_off_by_rho_on_every_row():  # Eq. (12)
    off = average(estimators.importance_weighted(), PROBS, noise_rate=0.2) - FULL_INFORMATION
    np.testing.assert_allclose(off, [-0.2, 0.2, -0.2], atol=1e-6)


@pytest.mark.parametrize("pi", [PROBS, EPSILON_GREEDY])
def test_the_debiased_update_is_off_by_nothing_under_label_noise(pi):
    got = average(estimators.debiased(noise_rate=0.2), pi, noise_rate=0.2)
    np.testing.assert_allclose(got, FULL_INFORMATION, atol=1e-5)


def test_banditron_averages_to_the_perceptron_step():
    got = average(estimators.banditron(), EPSILON_GREEDY)
    np.testing.assert_allclose(got, [1, -1, 0], atol=1e-6)  # 1[argmax p] - 1[i*]


def test_with_several_right_answers_importance_weighting_subtracts_each_of_them():
    got = average(estimators.importance_weighted(), PROBS, labels=(1, 2))
    np.testing.assert_allclose(got, [0.5, -0.7, -0.8], atol=1e-6)


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("item", [0, 2])
def test_bandit_likelihood_is_the_gradient_of_its_loss(item, reward):
    def loss(logits):
        p = jax.nn.softmax(logits)[item]
        return -(reward * jnp.log(p) + (1 - reward) * jnp.log1p(-p))

    got = estimators.bandit_likelihood().coefficients(a_round(item, reward, propensity=0.9))
    expected = jax.grad(loss)(jnp.log(jnp.asarray(PROBS, jnp.float32)))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_failure_of_which_the_model_was_certain_moves_nothing_to_infinity():
    certain = a_round(0, 0.0, propensity=1.0)._replace(
        probs=jnp.array([1.0, 0.0, 0.0]), p_chosen=jnp.float32(1.0)
    )
    got = estimators.bandit_likelihood(floor=1e-3).coefficients(certain)
    assert np.isfinite(got).all()


def test_implicit_exploration_bounds_the_step_of_the_least_likely_item():
    got = estimators.implicit_exploration(gamma=0.25).coefficients(a_round(1, 1.0, 1e-6))
    assert np.abs(got).max() <= 4.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: estimators.importance_weighted(divide_by="p"), "divide_by must be 'propensity'"),
        (lambda: estimators.debiased(noise_rate=0.5), r"noise_rate must be in \[0, 0.5\), got 0.5"),
        (lambda: estimators.debiased(noise_rate=-0.1), r"noise_rate must be in \[0, 0.5\)"),
        (lambda: estimators.implicit_exploration(gamma=0.0), "gamma must be > 0, got 0.0"),
        (lambda: estimators.clipped(floor=0.0), r"floor must be in \(0, 1\], got 0.0"),
        (lambda: estimators.bandit_likelihood(floor=1.0), r"floor must be in \(0, 1\), got 1.0"),
    ],
)
def test_settings_outside_their_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
