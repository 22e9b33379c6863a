"""Query maps against automatic differentiation and means computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners import presets
from jaxret.learners.wrappers import with_query_map
from jaxret.rules import projections, query_maps
from jaxret.types import Choice, Feedback

STEPS = {"tau": 0.2, "eta": 0.02}
TEACHER = presets.full_information(**STEPS, projection=projections.none())


@pytest.fixture
def problem():
    """Return Theta_1 [7, 4] and queries [9, 4]."""
    keys = jax.random.split(jax.random.key(3), 2)
    return jax.random.normal(keys[0], (7, 4)), jax.random.normal(keys[1], (9, 4))


def taught(rule, state, query, label):
    choice = Choice(item=jnp.asarray(0), propensity=jnp.asarray(1.0))
    return rule.update(state, query, choice, Feedback(jnp.asarray(0.0), labels=jnp.array([label])))


@pytest.mark.parametrize(
    ("query_map", "by_hand"),
    [
        (query_maps.linear(rate=1.0), lambda params, q: q + params @ q),
        (query_maps.low_rank(rate=1.0, rank=2), lambda params, q: q + params[0] @ (params[1] @ q)),
    ],
    ids=["linear", "low_rank"],
)
def test_a_map_and_the_rows_descend_the_gradient_of_the_loss(problem, query_map, by_hand):
    theta, queries = problem
    rule = with_query_map(TEACHER, query_map)
    state = rule.init(theta)
    state = taught(rule, state, queries[1], 2)  # away from the start, where A is zero
    query, label = queries[0], 5

    def loss(theta, params):
        return -jax.nn.log_softmax(theta @ by_hand(params, query) / STEPS["tau"])[label]

    slope = jax.grad(loss, argnums=(0, 1))(state.theta, state.extra[0])
    after = taught(rule, state, query, label)
    trees = (state.theta, state.extra[0]), (after.theta, after.extra[0]), slope
    for before, now, down in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(now, before - STEPS["eta"] * down, atol=1e-5)
        assert np.abs(down).max() > 1e-3


def test_rankings_and_logits_are_of_the_mapped_query(problem):
    theta, queries = problem
    rule = with_query_map(TEACHER, query_maps.linear(rate=1.0))
    state = taught(rule, rule.init(theta, jnp.arange(7) != 6), queries[0], 5)
    mapped = np.stack([q + state.extra[0] @ q for q in queries])
    np.testing.assert_allclose(
        rule.structure.query_map.apply(state.extra[0], queries), mapped, 1e-5
    )
    expected = mapped @ np.asarray(state.theta).T
    scores = np.asarray(rule.scores(state, queries))
    np.testing.assert_allclose(scores[:, :6], expected[:, :6], rtol=1e-5, atol=1e-6)
    assert (scores[:, 6] == -np.inf).all()
    logits = rule.logits(state, queries[2])
    np.testing.assert_allclose(logits[:6], expected[2, :6] / STEPS["tau"], rtol=1e-5, atol=1e-5)


def test_a_mean_centred_map_takes_out_the_mean_of_the_queries_before(problem):
    """The mean excludes the current query, so a result must not depend on when it is computed."""
    theta, queries = problem
    rule = with_query_map(TEACHER, query_maps.mean_centred(rate=1e-9, share=0.5, count=2.0))
    state = rule.init(theta)
    for query in queries[:3]:
        state = taught(rule, state, query, 5)
    expected = queries - 0.5 * queries[:3].sum(axis=0)[None] / (3 + 2.0)
    mapped = rule.structure.query_map.apply(state.extra[0], queries)
    np.testing.assert_allclose(mapped, expected, atol=1e-6)
