"""Ridge regressions a tool against matrices that are inverted, and what is forgotten."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.ridge import no_factors, observe, ridge_learner, variances
from jaxret.rules import policies

RIDGE, SCALE = 0.7, 0.4


def means_of(scale=SCALE):
    return lambda state, query: scale * (state.theta @ query)


def a_ridge(start, capacity=64):
    return ridge_learner(
        "a_ridge",
        policy=policies.greedy(),
        values=means_of(),
        ridge=RIDGE,
        scale=SCALE,
        start=start,
        capacity=capacity,
    )


def direct(rounds, t, start):
    """A_a^-1 [I, d, d] and W [I, d] of the first t rounds, by inverting each matrix anew."""
    inverses, weights = [], []
    for a, document in enumerate(rounds.theta):
        mine = rounds.items[:t] == a
        q, y = rounds.queries[:t][mine], rounds.rewards[:t][mine]
        prior = SCALE * document if start == "document" else np.zeros_like(document)
        inverses.append(np.linalg.inv(RIDGE * np.eye(len(document)) + q.T @ q))
        weights.append(inverses[-1] @ (RIDGE * prior + q.T @ y))
    return np.stack(inverses), np.stack(weights)


@pytest.mark.parametrize("start", ["document", "zero"])
def test_means_are_those_of_the_inverted_matrix(rounds, taught, start):
    world = rounds()
    states = taught(a_ridge(start), world)
    for t in (0, 1, 17, 60):
        weights = direct(world, t, start)[1]
        np.testing.assert_allclose(SCALE * states[t].theta, weights, atol=1e-12)


def test_variances_are_those_of_the_inverted_matrix(rounds, taught):
    world = rounds()
    states = taught(a_ridge("zero"), world)
    with jax.enable_x64(True):
        for t in (0, 1, 17, 60):
            inverses = direct(world, t, "zero")[0]
            for query in world.queries[:5]:
                got = variances(jax.tree.map(jnp.asarray, states[t].extra), query, 5, RIDGE)
                expected = np.einsum("i,aij,j->a", query, inverses, query)
                np.testing.assert_allclose(got, expected, atol=1e-12)


def test_scores_are_predicted_means(rounds, taught):
    world, learner = rounds(), a_ridge("document")
    state = taught(learner, world)[-1]
    with jax.enable_x64(True):
        got = learner.scores(state._replace(available=np.arange(5) != 2), world.queries[:4])
    expected = world.queries[:4] @ direct(world, 60, "document")[1].T
    expected[:, 2] = -np.inf
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_what_no_longer_fits_makes_its_tool_as_uncertain_as_before(rounds, taught):
    """With room for 8 rounds, against covariances that are kept whole."""
    world = rounds()
    state = taught(a_ridge("document", capacity=8), world)[-1]
    covariance = np.stack([np.eye(6) / RIDGE] * 5)
    weights, past = SCALE * world.theta.copy(), []
    for q, a, y in zip(world.queries, world.items, world.rewards, strict=True):
        if len(past) == 8:
            oldest, g = past.pop(0)
            covariance[oldest] += np.outer(g, g)
        v = covariance[a] @ q
        g = v / np.sqrt(1 + q @ v)
        covariance[a] -= np.outer(g, g)
        weights[a] += covariance[a] @ q * (y - weights[a] @ q)
        past.append((a, g))
    np.testing.assert_allclose(SCALE * state.theta, weights, atol=1e-12)
    with jax.enable_x64(True):
        got = variances(jax.tree.map(jnp.asarray, state.extra), world.queries[0], 5, RIDGE)
    q = world.queries[0]
    np.testing.assert_allclose(got, np.einsum("i,aij,j->a", q, covariance, q), atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > 0


def test_in_float32_thousands_of_rounds_of_one_query_keep_their_variance():
    query, factors = jnp.array([0.6, 0.8]), no_factors(3000, 2, jnp.float32)
    item = jnp.asarray(1)

    def step(_, factors):
        return observe(factors, query, item, 1.0)[0]

    factors = jax.jit(lambda f: jax.lax.fori_loop(0, 3000, step, f))(factors)
    got = variances(factors, query, 3, 1.0)
    np.testing.assert_allclose(got, [1, 1 / 3001, 1], atol=3e-5)


@pytest.mark.parametrize("name", ["ridge", "scale", "capacity"])
def test_settings_that_are_not_positive_are_refused(name):
    settings = {"ridge": 1.0, "scale": 1.0, "capacity": 1} | {name: 0}
    with pytest.raises(ValueError, match=rf"{name} must be >=? [01], got 0"):
        ridge_learner("none", policy=policies.greedy(), values=means_of(), start="zero", **settings)
