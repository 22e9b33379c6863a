"""Moments of the coefficients against closed forms and against many sampled rounds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from experiments.variance import of_round, over_queries
from jaxret.environments.environment import label_noise, respond
from jaxret.learners.rank_one import coefficients, rank_one, rule_of
from jaxret.rules import estimators, policies

LOGITS = np.array([0.3, -np.inf, 1.2, 0.0, -0.7])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
HERE = P > 0
UNBIASED = [
    (estimators.importance_weighted(), policies.softmax()),
    (estimators.importance_weighted(), policies.softmax(temperature=2.0)),
    (estimators.importance_weighted(), policies.epsilon_greedy(epsilon=0.3)),
    (estimators.chosen_only(), policies.softmax()),
    (estimators.full_information(), policies.greedy()),
]


@partial(jax.jit, static_argnames=("estimator", "draws"))
def compiled(estimator, draws, label, rho):
    learner = rank_one("one", estimator=estimator, policy=draws, tau=1.0, eta=1.0)
    return of_round(rule_of(learner), jnp.asarray(LOGITS), label, noise_rate=rho)


def of(estimator, draws, label, rho=0.0):
    """Return E[c], its bias and the variance of c."""
    found = compiled(estimator, draws, label, rho)
    return [np.asarray(x, np.float64) for x in (found.mean, found.bias, found.variance)]


@pytest.mark.parametrize(("estimator", "draws"), UNBIASED, ids=lambda x: x.name)
def test_unbiased_rules_have_no_bias_where_bits_are_right(estimator, draws):
    for label in (2, 4):
        mean, bias, _ = of(estimator, draws, label)
        assert bias < 1e-6
        np.testing.assert_allclose(mean, P - (np.arange(5) == label), atol=1e-6)


@pytest.mark.parametrize("rho", [0.1, 0.4])
def test_the_debiased_rule_has_no_bias_at_any_rate_and_the_papers_has_that_of_eq_12(rho):
    _, bias, _ = of(estimators.debiased(noise_rate=rho), policies.softmax(), 4, rho)
    assert bias < 1e-5
    _, bias, _ = of(estimators.importance_weighted(), policies.softmax(), 4, rho)
    assert bias == pytest.approx(rho * np.sqrt(4), rel=1e-5)  # rho on each of the 4 rows


@pytest.mark.parametrize("rho", [0.0, 0.2])
def test_the_variance_of_eq_4_is_its_closed_form(rho):
    label = 4
    m = np.where(np.arange(5) == label, 1 - rho, rho)[HERE]  # P(y = 1) of each item
    _, _, variance = of(estimators.importance_weighted(), policies.softmax(), label, rho)
    assert variance == pytest.approx((m / P[HERE] - m**2).sum(), rel=1e-5)
    if rho == 0:
        assert variance == pytest.approx(1 / P[label] - 1, rel=1e-5)


def test_full_information_has_no_variance_and_clipping_trades_variance_for_bias():
    assert of(estimators.full_information(), policies.softmax(), 4, 0.4)[2] < 1e-12
    _, _, exact = of(estimators.importance_weighted(), policies.softmax(), 4)
    _, bias, clipped = of(estimators.clipped(floor=0.5), policies.softmax(), 4)
    assert bias == pytest.approx(1 - P[4] / 0.5, rel=1e-5)
    assert clipped < exact / 5


@pytest.mark.parametrize(
    ("estimator", "draws"),
    [
        (estimators.importance_weighted(), policies.softmax(temperature=0.5)),
        (estimators.bandit_likelihood(), policies.softmax()),
        (estimators.bandit_likelihood(), policies.greedy()),
        (estimators.banditron(), policies.epsilon_greedy(epsilon=0.4)),
        (estimators.debiased(noise_rate=0.2), policies.softmax()),
    ],
    ids=lambda x: x.name,
)
def test_many_rounds_of_policy_environment_and_estimator_have_these_moments(estimator, draws):
    label, rho, n = 0, 0.2, 40_000
    environment, z, labels = label_noise(rho), jnp.asarray(LOGITS, jnp.float32), jnp.array([label])

    def draw(key):
        act, lot = jax.random.split(key)
        slate = draws.show(act, z, None)
        choice, feedback, _ = respond(environment, lot, slate, labels, jnp.zeros((), jnp.int32))
        return coefficients(estimator, z, choice, feedback, None)

    c = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(3), n))
    c = np.asarray(c, np.float64)
    mean, bias, variance = of(estimator, draws, label, rho)
    assert (np.abs(c.mean(axis=0) - mean) <= 4.5 * c.std(axis=0) / np.sqrt(n) + 1e-6).all()
    squares = ((c - mean) ** 2).sum(axis=1)
    assert abs(squares.mean() - variance) <= 4.5 * squares.std() / np.sqrt(n) + 1e-6
    gradient = P - (np.arange(5) == label)
    assert bias == pytest.approx(np.linalg.norm(mean - gradient), abs=1e-5)


def test_queries_are_averaged_over_one_by_one_at_the_rules_temperature():
    rng = np.random.default_rng(0)
    theta, queries = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    theta, queries = (jnp.asarray(x, jnp.float32) for x in (theta, queries))
    labels, estimator = jnp.array([3, 0, 1, 1]), estimators.importance_weighted()
    one = rank_one("a", estimator=estimator, policy=policies.softmax(), tau=0.5, eta=1.0)
    got = jax.jit(lambda: over_queries(rule_of(one), theta, queries, labels))()
    p = softmax(np.asarray(queries) @ np.asarray(theta).T / 0.5, axis=1)[range(4), labels]
    np.testing.assert_allclose(got.variance, 1 / p - 1, rtol=1e-4)
    assert got.mean.shape == (4, 5)
