"""Query maps against automatic differentiation and means computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners import presets
from jaxret.learners.wrappers import with_query_map
from jaxret.rules import projections, query_maps
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback

STEPS = {"tau": 0.2, "eta": 0.02}
TEACHER = presets.full_information(**STEPS, projection=projections.none())


THETA, QUERIES = (np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32) for n in (7, 9))


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
def test_a_map_and_the_rows_descend_the_gradient_of_the_loss(query_map, by_hand):
    rule = with_query_map(TEACHER, query_map)
    query, label = QUERIES[0], 5

    def loss(theta, params):
        return -jax.nn.log_softmax(theta @ by_hand(params, query) / STEPS["tau"])[label]

    @quick_jit
    def learnt():
        state = rule.init(THETA)
        state = taught(rule, state, QUERIES[1], 2)  # away from the start, where A is zero
        slope = jax.grad(loss, argnums=(0, 1))(state.theta, state.extra[0])
        after = taught(rule, state, query, label)
        return (state.theta, state.extra[0]), (after.theta, after.extra[0]), slope

    for before, now, down in zip(*map(jax.tree.leaves, learnt()), strict=True):
        np.testing.assert_allclose(now, before - STEPS["eta"] * down, atol=1e-5)
        assert np.abs(down).max() > 1e-3


def test_rankings_and_logits_are_of_the_mapped_query():
    rule = with_query_map(TEACHER, query_maps.linear(rate=1.0))

    @quick_jit
    def computed():
        state = taught(rule, rule.init(THETA, jnp.arange(7) != 6), QUERIES[0], 5)
        mapped = rule.structure.query_map.apply(state.extra[0], QUERIES)
        return state, mapped, rule.scores(state, QUERIES), rule.logits(state, QUERIES[2])

    state, found, scores, logits = jax.device_get(computed())
    mapped = QUERIES + QUERIES @ state.extra[0].T
    np.testing.assert_allclose(found, mapped, 1e-5)
    expected = mapped @ state.theta.T
    np.testing.assert_allclose(scores[:, :6], expected[:, :6], rtol=1e-5, atol=1e-6)
    assert (scores[:, 6] == -np.inf).all()
    np.testing.assert_allclose(logits[:6], expected[2, :6] / STEPS["tau"], rtol=1e-5, atol=1e-5)


def test_a_mean_centred_map_takes_out_the_mean_of_the_queries_before():
    """The mean excludes the current query, so a result must not depend on when it is computed."""
    rule = with_query_map(TEACHER, query_maps.mean_centred(rate=1e-9, share=0.5, count=2.0))

    @quick_jit
    def mapped():
        state = rule.init(THETA)
        for query in QUERIES[:3]:
            state = taught(rule, state, query, 5)
        return rule.structure.query_map.apply(state.extra[0], QUERIES)

    expected = QUERIES - 0.5 * QUERIES[:3].sum(axis=0)[None] / (3 + 2.0)
    np.testing.assert_allclose(mapped(), expected, atol=1e-6)
