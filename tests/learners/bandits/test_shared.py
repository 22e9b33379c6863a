"""One regression for all tools: its features, its map of the queries, what it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits import shared

BASES = {"constant": (shared.constant, lambda q: [1.0]), "itself": (shared.itself, lambda q: q)}


def by_hand(theta, query, base):
    """x(q, a) of every tool."""
    return np.stack(
        [
            np.concatenate([len(query) ** 0.5 * query * row, [query @ row], base(query)])
            for row in theta
        ]
    )


def a_shared(base, start="document", ridge=0.9):
    return shared.shared_learner(
        "a_shared", base=base, start=start, ridge=ridge, act=lambda state, query, key: None
    )


@pytest.mark.parametrize("name", BASES)
def test_features_are_products_cosine_and_base(rounds, name):
    base, expected = BASES[name]
    world = rounds()
    query = world.queries[0]
    with jax.enable_x64(True):
        got = shared.features(jnp.asarray(world.theta), jnp.asarray(query), base)
        np.testing.assert_allclose(got, by_hand(world.theta, query, expected), atol=1e-14)
        one = shared.features(jnp.asarray(world.theta[3]), jnp.asarray(query), base)
        np.testing.assert_allclose(one, got[3], atol=1e-14)


@pytest.mark.parametrize("start", ["document", "zero"])
@pytest.mark.parametrize("name", BASES)
def test_it_is_the_ridge_regression_on_the_features(rounds, taught, name, start):
    base, expected = BASES[name]
    world, learner = rounds(), a_shared(base, start)
    states = taught(learner, world)
    x = np.stack(
        [
            by_hand(world.theta, query, expected)[item]
            for query, item in zip(world.queries, world.items, strict=True)
        ]
    )
    prior = np.zeros(x.shape[1])
    prior[6] = start == "document"  # the weight of the cosine
    for t in (0, 9, 60):
        precision = 0.9 * np.eye(len(prior)) + x[:t].T @ x[:t]
        weights = np.linalg.solve(precision, 0.9 * prior + x[:t].T @ world.rewards[:t])
        with jax.enable_x64(True):
            got = learner.scores(states[t], jnp.asarray(world.queries[:3]))
        means = [by_hand(world.theta, query, expected) @ weights for query in world.queries[:3]]
        np.testing.assert_allclose(got, means, atol=1e-11)
    np.testing.assert_array_equal(states[-1].theta, world.theta)


def test_mapped_queries_rank_the_documents_as_the_scores_do(rounds, taught):
    world, learner = rounds(), a_shared(shared.itself)
    state = taught(learner, world)[-1]
    with jax.enable_x64(True):
        mapped = np.asarray(learner.map_queries(state, jnp.asarray(world.queries)))
        scores = np.asarray(learner.scores(state, jnp.asarray(world.queries)))
    products = mapped @ world.theta.T
    offsets = scores - products  # the base alone: the same for every tool
    np.testing.assert_allclose(offsets, np.repeat(offsets[:, :1], 5, axis=1), atol=1e-12)
    assert np.abs(np.diff(scores, axis=1)).min() > 1e-6
    assert np.abs(offsets).min() > 1e-6


def test_an_absent_tool_has_no_score(rounds, taught):
    world, learner = rounds(), a_shared(shared.constant)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 2)
    with jax.enable_x64(True):
        scores = learner.scores(state, jnp.asarray(world.queries[:2]))
    np.testing.assert_array_equal(np.isneginf(scores), [[False, False, True, False, False]] * 2)


def test_a_ridge_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match=r"ridge must be > 0, got 0"):
        a_shared(shared.constant, ridge=0.0)
