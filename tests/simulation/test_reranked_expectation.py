"""Algorithm 2 in expectation: a reranker picks one of k items sampled without replacement.

Let r be the probability that the reranker picks the right item i* if the slate contains i*, and pi
the probability that the slate contains i* given the noise of the other items (Kool et al. 2019):

    divided by pi      E[c] = p - r 1[i*]                            unbiased for an exact reranker
    divided by p       E[c] = p - r P(i* on the slate) / p_i* 1[i*]  the paper's weight

Slates are enumerated; the continuous threshold kappa is integrated numerically.
"""

from functools import cache
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment, respond, simulated_reranker
from jaxret.learners.rank_one import coefficients
from jaxret.rules import estimators, policies
from tests.problems import enumerated_inclusion

P = np.array([0.45, 0.25, 0.15, 0.1, 0.05])
RIGHT = 2
DRAWS = 200_000


def below(x, item, k):
    """Compute P(kappa <= x): fewer than k of the others' perturbed log-probabilities exceed x."""
    others = [i for i in range(len(P)) if i != item]
    over = {i: -np.expm1(-np.exp(np.log(P[i]) - x)) for i in others}
    total = np.zeros_like(x)
    for size in range(k):
        for some in combinations(others, size):
            total += np.prod([over[i] if i in some else 1 - over[i] for i in others], axis=0)
    return total


def threshold(item, k):
    """Return the distribution of kappa as a fine grid with probabilities."""
    edges = np.linspace(-12, 25, 40_001)
    return (edges[1:] + edges[:-1]) / 2, np.diff(below(edges, item, k))


@pytest.mark.parametrize("k", [2, 3])
def test_the_conditional_propensity_averages_to_the_inclusion_probability(k):
    for item in range(len(P)):
        kappa, weight = threshold(item, k)
        assert weight.sum() == pytest.approx(1, abs=1e-6)
        conditional = -np.expm1(-np.exp(np.log(P[item]) - kappa))
        assert (weight * conditional).sum() == pytest.approx(
            enumerated_inclusion(P, k)[item], abs=1e-6
        )


@pytest.mark.parametrize("accuracy", [1.0, 0.5])
def test_weighting_by_the_inverse_propensity_averages_to_p_minus_r(accuracy):
    """Given kappa, i* is on the slate with probability pi and then has weight 1 / pi, r times."""
    k = 3
    r = accuracy + (1 - accuracy) / k
    kappa, weight = threshold(RIGHT, k)
    pi = -np.expm1(-np.exp(np.log(P[RIGHT]) - kappa))
    exact = P - (weight * pi * r / pi).sum() * (np.arange(len(P)) == RIGHT)
    np.testing.assert_allclose(exact, P - r * (np.arange(len(P)) == RIGHT), atol=1e-6)
    np.testing.assert_allclose(sampled()[accuracy, "propensity"], exact, atol=0.02)


@pytest.mark.parametrize("accuracy", [1.0, 0.5])
def test_the_papers_weight_is_off_by_the_draw(accuracy):
    k = 3
    r = accuracy + (1 - accuracy) / k
    factor = r * enumerated_inclusion(P, k)[RIGHT] / P[RIGHT]
    expected = P - factor * (np.arange(len(P)) == RIGHT)
    np.testing.assert_allclose(sampled()[accuracy, "model"], expected, atol=0.03)
    assert factor > 1.5 * r  # the bias is large


@cache
def sampled():
    """Compute mean coefficients over many rounds of the real policy, rerankers and estimators."""
    rule = policies.softmax(k=3)
    logits, labels = jnp.log(jnp.asarray(P, jnp.float32)), jnp.array([RIGHT])

    def one(key):
        draw, *lots = jax.random.split(key, 3)
        slate, found = rule.show(draw, logits, None), {}
        for lot, accuracy in zip(lots, (1.0, 0.5), strict=True):
            environment = Environment(reranker=simulated_reranker(accuracy=accuracy))
            choice, feedback, _ = respond(environment, lot, slate, labels, jnp.int32(0))
            for divide_by in ("propensity", "model"):
                estimator = estimators.importance_weighted(divide_by=divide_by)
                c = coefficients(estimator, logits, choice, feedback, None)
                found[accuracy, divide_by] = c
        return found

    rounds = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), DRAWS))
    return {key: np.asarray(c, np.float64).mean(axis=0) for key, c in rounds.items()}
