"""ReFIT: its gradient is that of the divergence, which decreases, and recall increases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import rel_entr, softmax

from jaxret.methods.refit import refit
from jaxret.retrieval.dense import inner_product
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import search

N, I, K, D = 6, 50, 12, 8
TAU, SCALE = 0.2, 0.7  # SCALE is the reranker's temperature


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    queries, theta = unit(rng.normal(size=(N, D))), unit(rng.normal(size=(I, D)))
    items = np.stack([rng.choice(I, K, replace=False) for _ in range(N)]).astype(np.int32)
    items[1, 9:] = -1
    return queries, theta, items, rng.normal(size=(N, K))


def divergence(query, theta, items, scores):
    """Compute KL(reranker || query) over the candidates with NumPy."""
    real = items >= 0
    wanted = softmax(scores[real] / SCALE)
    return rel_entr(wanted, softmax(theta[items[real]] @ query / TAU)).sum()


def run(case, **settings):
    with jax.enable_x64(True):
        settings = {"tau": TAU, "reranker_tau": SCALE, "learning_rate": TAU**2} | settings
        return np.asarray(jax.jit(lambda *args: refit(*args, **settings))(*case))


def test_a_step_is_down_the_gradient_of_the_divergence(case):
    queries, theta, items, scores = case
    moved = run(case, steps=1, learning_rate=0.01)
    for row in range(N):
        around = queries[row] + 1e-6 * np.concatenate([np.eye(D), -np.eye(D)])
        values = [divergence(query, theta, items[row], scores[row]) for query in around]
        slope = (np.array(values[:D]) - values[D:]) / 2e-6
        np.testing.assert_allclose(moved[row] - queries[row], -0.01 * slope, atol=1e-9)


def test_steps_are_those_of_automatic_differentiation(case):
    queries, theta, items, scores = case
    with jax.enable_x64(True):

        def loss(query, candidates, wanted):
            logits = jnp.asarray(theta)[candidates] @ query / TAU
            return -(jax.nn.softmax(wanted / SCALE) * jax.nn.log_softmax(logits)).sum()

        slope = jax.jit(jax.vmap(jax.grad(loss)))
        full, expected = np.array([0, 2, 3, 4, 5]), queries.copy()
        for _ in range(20):
            step = slope(expected[full], items[full], scores[full])
            expected[full] -= TAU**2 * np.asarray(step)
    np.testing.assert_allclose(run(case, steps=20)[full], expected[full], rtol=1e-10)


def test_the_divergence_falls_with_every_step_of_tau_squared(case):
    queries, theta, items, scores = case
    paths = [queries] + [run(case, steps=steps) for steps in (1, 2, 5, 20, 100)]
    for n in range(N):
        falls = [divergence(path[n], theta, items[n], scores[n]) for path in paths]
        assert (np.diff(falls) < 0).all()
        assert falls[-1] < 0.5 * falls[0]


def test_no_steps_and_no_candidates_leave_a_query_as_it_is(case):
    queries, theta, items, scores = case
    np.testing.assert_array_equal(run(case, steps=0), queries)
    none = items.copy()
    none[3] = -1
    moved = run((queries, theta, none, scores))
    np.testing.assert_array_equal(moved[3], queries[3])
    assert np.isfinite(moved).all()


def test_scores_of_absent_candidates_are_not_read(case):
    queries, theta, items, scores = case
    # Scores as `refine` returns them; a shift has no effect.
    void = np.where(items < 0, -np.inf, scores - 1000)
    np.testing.assert_allclose(run((queries, theta, items, void)), run(case), rtol=1e-10)


def test_the_second_search_finds_a_tool_that_the_first_one_missed():
    # Tools on an arc at 0, 10, .. 80 degrees, and a query at 20 degrees, nearest to tools at 10, 20
    # and 30. A reranker that prefers 30 turns the query towards the tool at 40.
    angles = np.radians(np.arange(0, 90, 10))
    theta = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    query = np.array([[np.cos(np.radians(20.1)), np.sin(np.radians(20.1))]], np.float32)
    first = search(inner_product("first", theta), query, 3, progress=False)
    assert sorted(first.items[0].tolist()) == [1, 2, 3]
    judged = Ranking(items=first.items, scores=np.where(first.items == 3, 4.0, 0.0))
    better = jax.jit(refit)(query, theta, judged.items, judged.scores)
    second = search(inner_product("second", theta), better, 3, progress=False)
    assert 4 in second.items[0].tolist()


@pytest.mark.parametrize("setting", ["learning_rate", "tau", "reranker_tau"])
def test_settings_outside_their_range_are_refused(case, setting):
    with pytest.raises(ValueError, match=f"{setting} must be > 0, got 0"):
        refit(*case, **{setting: 0.0})
    with pytest.raises(ValueError, match="steps must be >= 0, got -1"):
        refit(*case, steps=-1)
