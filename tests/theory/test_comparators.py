"""Comparators without and with a constraint: optima, certificates and margins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.theory.comparators import hindsight, in_ball, margin, proximal
from tests.theory.conftest import losses_and_steps, unit

# Compiled once; tests use arrays of few shapes.
HINDSIGHT, PROXIMAL, IN_BALL = map(jax.jit, (hindsight, proximal, in_ball))
MARGIN = jax.jit(margin)


def solve(solver, *arrays, **options):
    with jax.enable_x64(True):
        arrays = map(jnp.asarray, arrays)
        return jax.tree.map(np.asarray, solver(*arrays, **jax.tree.map(jnp.asarray, options)))


def test_one_query_with_three_labels_costs_their_entropy():
    queries, labels = np.tile([0.6, 0.8], (3, 1)), np.arange(3)[:, None]
    counts = np.array([3.0, 1.0, 2.0])
    p = counts / 6
    options = {"theta_0": np.zeros((3, 2)), "counts": counts, "tau": 0.5, "tolerance": 1e-9}
    got = solve(HINDSIGHT, queries, labels, **options)
    assert got.converged
    np.testing.assert_allclose(got.loss, -(counts * np.log(p)).sum(), rtol=1e-12)
    z = got.theta @ queries[0] / 0.5
    np.testing.assert_allclose(np.exp(z) / np.exp(z).sum(), p, atol=1e-8)


def separable():
    return np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]]), np.array([[0], [1], [2]])


def test_separable_data_have_no_hindsight_optimum():
    options = {"theta_0": np.zeros((3, 2)), "counts": np.ones(3), "tau": 1.0}
    found = [
        solve(HINDSIGHT, *separable(), **options, tolerance=tolerance)
        for tolerance in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    ]
    assert all(one.converged for one in found)
    assert all(solve(MARGIN, one.theta, *separable()) > 0 for one in found)
    assert (np.diff([np.linalg.norm(one.theta) for one in found]) > 1.0).all()
    loss = np.array([one.loss for one in found])
    assert (loss[1:] < 0.2 * loss[:-1]).all()
    assert loss[-1] < 1e-4


def test_the_margin_is_the_least_lead_of_a_label():
    theta, queries = np.eye(2), np.array([[0.9, 0.2], [0.3, 0.4]])
    for labels, least in (([[0], [1]], 0.1), ([[0], [0]], -0.1)):
        np.testing.assert_allclose(solve(MARGIN, theta, queries, labels), least, rtol=1e-5)


def near_start(queries, labels, theta_1, counts, **options):
    options = {"tau": 0.5, "eta": 0.5, "max_iterations": 200} | options
    return solve(PROXIMAL, queries, labels, theta_1, counts=counts, **options)


def draw(seed, queries=50, items=6, width=4):
    rng = np.random.default_rng(seed)
    q, labels = rng.normal(size=(queries, width)), rng.integers(0, items, (queries, 1))
    return q, labels, rng.normal(size=(items, width))


def test_the_proximal_comparator_is_finite_on_separable_data():
    queries, labels, theta_1 = draw(0)
    queries[:3] = np.pad(separable()[0], ((0, 0), (0, 2)))
    labels[:3] = separable()[1]
    counts = (np.arange(50) < 3).astype(float)
    found = near_start(queries, labels, theta_1, counts, eta=2.0, tau=0.7, tolerance=1e-12)
    assert found.converged
    assert found.iterations > 0
    assert np.linalg.norm(found.theta) < 100.0


def test_the_proximal_comparator_satisfies_its_optimality_condition():
    (queries, labels, theta_1), eta = draw(1), 0.02
    counts = np.random.default_rng(1).integers(0, 4, 50).astype(float)
    for tau in (0.1, 1.0):
        options = {"eta": eta, "tau": tau, "tolerance": 1e-13}
        got = near_start(queries, labels, theta_1, counts, **options)
        assert got.converged
        _, c = losses_and_steps(got.theta, queries, labels, tau)
        gradient = (counts[:, None] * c).T @ queries / tau
        np.testing.assert_allclose(gradient, -(got.theta - theta_1) / eta, atol=1e-7)


def test_the_certificates_hold_for_a_search_that_stops_early():
    def stopped_after(limit):
        return near_start(*draw(2), np.ones(50), tolerance=1e-14, max_iterations=limit)

    best = stopped_after(500)
    assert best.converged
    for limit in (0, 1, 3, 6):
        early = stopped_after(limit)
        assert not early.converged
        assert early.iterations == limit
        assert 0 < np.linalg.norm(early.theta - best.theta) <= early.distance
        assert 0 < early.objective - best.objective <= early.gap


def test_a_step_size_of_zero_is_refused():
    with pytest.raises(ValueError, match="eta must be > 0, got 0"):
        proximal(jnp.ones((1, 2)), jnp.zeros((1, 1), int), jnp.ones((3, 2)), eta=0.0, tau=1.0)


RADIUS, TAU = 1.0, 0.3


def make_data(items=6, width=4, queries=15, seed=0):
    rng = np.random.default_rng(seed)
    q = unit(rng.normal(size=(queries, width)))
    return q, rng.integers(0, items, (queries, 1)), rng.normal(size=(items, width))


def loss_and_gradient(theta, q, labels):
    losses, c = losses_and_steps(theta, q, labels, TAU)
    return losses.sum(), c.T @ q / TAU


def solved(q, labels, theta, radius=RADIUS, counts=None, max_iterations=5000):
    counts = np.ones(len(q)) if counts is None else counts
    options = {"radius": radius, "counts": counts, "max_iterations": max_iterations}
    return solve(IN_BALL, q, labels, theta_0=theta, tau=TAU, tolerance=1e-10, **options)


def test_plain_projected_gradient_in_numpy_finds_the_same_minimum():
    q, labels, theta = make_data()
    found = solved(q, labels, theta)
    for _ in range(4000):
        theta = theta - 0.01 * loss_and_gradient(theta, q, labels)[1]
        theta /= np.maximum(np.linalg.norm(theta, axis=1, keepdims=True) / RADIUS, 1.0)
    assert found.converged
    assert found.loss == pytest.approx(loss_and_gradient(theta, q, labels)[0], abs=1e-6)


def test_rows_are_in_the_ball_even_if_the_data_are_separable():
    q, labels, theta = make_data()
    q[:3], labels[:3, 0] = np.eye(4)[:3], range(3)
    found = solved(q, labels, 0 * theta, counts=(np.arange(15) < 3).astype(float))
    assert found.converged
    assert (np.linalg.norm(found.theta, axis=1) <= RADIUS + 1e-9).all()


def test_the_gap_bounds_the_distance_to_the_minimum_also_when_cut_short():
    q, labels, theta = make_data(seed=1)
    best = solved(q, labels, theta)
    for iterations in (1, 3, 10):
        early = solved(q, labels, theta, max_iterations=iterations)
        assert not early.converged
        assert 0 < early.loss - best.loss <= early.gap


@pytest.mark.parametrize("radius", [0.4, 2.5])
def test_the_certificate_is_that_of_its_own_ball(radius):
    """``<G, Theta> + R sum_i ||G_i||``: without R it is too loose for R < 1 and invalid above."""
    q, labels, theta = make_data(seed=1)
    best = solved(q, labels, theta, radius=radius)
    assert best.converged
    assert np.linalg.norm(best.theta, axis=1).max() == pytest.approx(radius, rel=1e-6)
    for iterations in (0, 3, 10):
        early = solved(q, labels, theta, radius=radius, max_iterations=iterations)
        loss, gradient = loss_and_gradient(early.theta, q, labels)
        lengths = np.linalg.norm(gradient, axis=1)
        by_hand = (gradient * early.theta).sum() + radius * lengths.sum()
        assert early.loss == pytest.approx(loss)
        assert early.gap == pytest.approx(by_hand)
        assert 0 < early.loss - best.loss <= early.gap


def test_counts_weigh_queries_as_repeating_them_does():
    q, labels, theta = make_data(seed=2)
    times = np.array([1, 3, 2, 0, 2, 1, 3, 3] + 7 * [0])  # 15 in all
    weighed = solved(q, labels, theta, counts=times.astype(float))
    repeated = solved(np.repeat(q, times, axis=0), np.repeat(labels, times, axis=0), theta)
    assert weighed.loss == pytest.approx(repeated.loss, abs=1e-7)
    each, _ = losses_and_steps(weighed.theta, q, labels, TAU)
    assert weighed.loss == pytest.approx(times @ each)
