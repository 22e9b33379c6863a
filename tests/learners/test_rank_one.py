"""Probabilities per position: their product is the probability of the slate, by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners.rank_one import position_probabilities
from jaxret.rules.policies import by_position
from jaxret.types import Slate


def drawn_one_after_the_other(p, slate):
    p = np.asarray(p, np.float64)
    return [p[item] / (1 - p[list(slate[:j])].sum()) for j, item in enumerate(slate)]


def test_the_products_of_all_slates_are_a_distribution():
    p = np.array([0.5, 0.3, 0.15, 0.05])
    slates = [*itertools.permutations(range(4), 3)]
    probabilities = np.asarray(jax.jit(jax.vmap(by_position, (None, 0)))(p, np.array(slates)))
    expected = [drawn_one_after_the_other(p, slate) for slate in slates]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    np.testing.assert_allclose(probabilities.prod(axis=1).sum(), 1, rtol=1e-5)


def test_a_place_below_one_that_is_almost_certain_keeps_its_digits():
    p = jnp.asarray([1.0 - 1e-7, 6e-8, 4e-8])
    np.testing.assert_allclose(by_position(p, jnp.asarray([0, 1])), [1, 0.6], rtol=1e-5)


def test_slates_occur_as_often_as_their_probabilities_say(optimised):
    """Compare the share of each slate among many samples, for k = 2 of 3 tools."""
    learner = jr.orag(tau=0.5, k=2)
    theta = np.float32([[1, 0], [0.6, 0.8], [0, 1]])
    query = np.float32([0.9, 0.4])
    state = jax.jit(learner.init)(theta)

    def draw(key):
        slate = learner.act(state, query, key)
        return slate.items, position_probabilities(learner, state, query, slate)

    n = 20_000
    items, probabilities = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), n))
    z = np.exp(np.asarray(state.theta, np.float64) @ query / 0.5)
    p = z / z.sum()
    for slate in itertools.permutations(range(3), 2):
        here = (np.asarray(items) == slate).all(axis=1)
        expected = drawn_one_after_the_other(p, slate)
        np.testing.assert_allclose(np.asarray(probabilities)[here][0], expected, rtol=1e-4)
        share = np.prod(expected)
        assert abs(here.mean() - share) < 4 * np.sqrt(share * (1 - share) / n)


@pytest.mark.parametrize(
    ("learner", "propensities", "expected"),
    [
        (jr.greedy(k=2), [1.0, 1.0], [np.nan, np.nan]),  # does not draw by position
        (jr.orag(k=2)._replace(structure=None), [1.0, 1.0], [np.nan, np.nan]),
        (jr.greedy(), [0.25], [0.25]),  # a slate of one
    ],
    ids=["greedy", "no structure", "one item"],
)
def test_probabilities_are_unknown_or_the_propensity(learner, propensities, expected):
    slate = Slate(jnp.asarray([2, 0][: len(expected)]), jnp.asarray(propensities))
    state = learner.init(jnp.eye(3))
    got = position_probabilities(learner, state, jnp.ones(3), slate)
    np.testing.assert_array_equal(got, expected)
