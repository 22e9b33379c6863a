"""A ridge regression per tool, against matrix inverses, mabwiser and Algorithm 1 of LinUCB."""

import jax
import numpy as np
import pytest

from jaxret.learners.bandits.common import cosines
from jaxret.learners.bandits.linucb import (
    Factors,
    linucb,
    observe,
    ridge_epsilon_greedy,
    ridge_learner,
    variances,
)
from jaxret.rules import policies
from tests.learners.bandits.rounds import compute, make_mabwiser_log, make_rounds, taught

ALPHA, RIDGE, SCALE = 0.6, 0.7, 0.4
# Scores of mabwiser's LinUCB (alpha 2, l2_lambda 0.8) and LinGreedy (epsilon 0) for its four
# contexts.
LINUCB = [
    [1.5093205721436909, 1.248908660471924, 0.7893181031619451, 1.7018852436198026],
    [1.7745232592738625, 1.92329712409539, 0.9886453050333157, 2.714150662096779],
    [2.364556001212753, 1.4260620439439267, 3.3121638731871355, 1.4614137961218339],
    [0.5661441568957574, 0.5401150523992879, 0.4754528686051945, 0.8642883139680966],
]
LINGREEDY = [
    [0.5460029181813959, -0.1984228118521349, -0.253403688363702, 0.6445644090380984],
    [0.532619720454371, 0.1754230670515335, -0.25144897198580235, 1.0610666563644988],
    [0.6843801859948785, -1.6925296667644933, -0.266067388401833, -0.8864955409104189],
    [0.14604995529124207, 0.04775331988769366, -0.11409490233122394, 0.2942086580566025],
]


def a_ridge(start, capacity=64):
    return ridge_learner(
        "a_ridge",
        policy=policies.greedy(),
        values=lambda state, query: SCALE * cosines(state, query),
        ridge=RIDGE,
        scale=SCALE,
        start=start,
        capacity=capacity,
    )


def direct(rounds, t, start):
    """Compute A_a^-1 [I, d, d] and W [I, d] of the first t rounds by inverting each matrix."""
    inverses, weights = [], []
    for a, document in enumerate(rounds.theta):
        mine = rounds.items[:t] == a
        q, y = rounds.queries[:t][mine], rounds.rewards[:t][mine]
        prior = SCALE * document if start == "document" else np.zeros_like(document)
        inverses.append(np.linalg.inv(RIDGE * np.eye(len(document)) + q.T @ q))
        weights.append(inverses[-1] @ (RIDGE * prior + q.T @ y))
    return np.stack(inverses), np.stack(weights)


def variances_of_all(factors, queries):
    return jax.vmap(lambda query: variances(factors, query, 5, RIDGE))(queries)


@pytest.mark.parametrize("start", ["document", "zero"])
def test_means_and_variances_are_those_of_the_inverted_matrices(start):
    world, learner = make_rounds(), a_ridge(start)
    states = taught(learner, world)
    for t in (0, 1, 17, 60):
        inverses, weights = direct(world, t, start)
        np.testing.assert_allclose(SCALE * states[t].theta, weights, atol=1e-12)
        queries = world.queries[:5]
        got = compute(variances_of_all, states[t].extra, queries)
        expected = np.einsum("qi,aij,qj->qa", queries, inverses, queries)
        np.testing.assert_allclose(got, expected, atol=1e-12)
    scores = compute(learner.scores, states[-1], world.queries[:4])
    np.testing.assert_allclose(scores, world.queries[:4] @ weights.T, atol=1e-12)


def test_a_round_that_leaves_the_ring_restores_the_variance_of_its_tool():
    """With a capacity of 8 rounds, against separately stored full covariances."""
    world = make_rounds()
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
    queries = world.queries[:5]
    got = compute(variances_of_all, state.extra, queries)
    expected = np.einsum("qi,aij,qj->qa", queries, covariance, queries)
    np.testing.assert_allclose(got, expected, atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > 0


def test_in_float32_thousands_of_rounds_of_one_query_keep_their_variance():
    query, item = np.float32([0.6, 0.8]), np.int32(1)
    first = Factors(np.zeros((3000, 2), np.float32), np.zeros(3000, np.int32), np.int32(0))

    @jax.jit
    def run(factors, query):
        step = lambda _, factors: observe(factors, query, item, 1.0)[0]  # noqa: E731
        return variances(jax.lax.fori_loop(0, 3000, step, factors), query, 3, 1.0)

    got = run(first, query)
    np.testing.assert_allclose(got, [1, 1 / 3001, 1], atol=3e-5)


def test_linucb_shows_what_algorithm_1_shows():
    world = make_rounds()
    learner = linucb(alpha=ALPHA, ridge=RIDGE, scale=SCALE)
    states = taught(learner, world)  # by the logged tools, not the learner's choices
    with jax.enable_x64(True):
        probabilities = jax.jit(learner.probabilities)
        for t, query in enumerate(world.queries):
            inverses, weights = direct(world, t, "document")
            bonus = np.sqrt(np.einsum("i,aij,j->a", query, inverses, query))
            best = (weights @ query + ALPHA * bonus).argmax()
            np.testing.assert_array_equal(probabilities(states[t], query), np.arange(5) == best)


def test_epsilon_greedy_shows_the_best_mean_and_explores_uniformly():
    world, learner = make_rounds(), ridge_epsilon_greedy(epsilon=0.4, ridge=RIDGE, scale=SCALE)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 1)
    query = world.queries[3]
    expected = 0.1 * (np.arange(5) != 1)
    upper = np.where(np.arange(5) != 1, direct(world, 60, "document")[1] @ query, -np.inf)
    expected[upper.argmax()] += 0.6
    got = compute(learner.probabilities, state, query)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_means_and_bonuses_are_those_of_mabwiser():
    (log, contexts), alpha, ridge = make_mabwiser_log(), 2.0, 0.8
    learner = linucb(alpha=alpha, ridge=ridge, start="zero")
    for rule in (learner, ridge_epsilon_greedy(ridge=ridge, start="zero")):
        state = taught(rule, log)[-1]
        scores = compute(rule.scores, state, contexts)
        np.testing.assert_allclose(scores, LINGREEDY, rtol=1e-11)
    state = taught(learner, log)[-1]

    def of_one(state, context):
        return variances(state.extra, context, 4, ridge), learner.probabilities(state, context)

    squares, chosen = compute(jax.vmap(of_one, (None, 0)), state, contexts)
    np.testing.assert_allclose(LINGREEDY + alpha * np.sqrt(squares), LINUCB, rtol=1e-11)
    np.testing.assert_array_equal(chosen.argmax(axis=1), np.argmax(LINUCB, axis=1))
