"""Comparators without and with a constraint: optima, certificates and margins."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.theory.comparators import hindsight, in_ball, losses, margin, proximal
from tests.theory.conftest import losses_and_steps, unit


def solve(solver, *arrays):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(solver)(*map(jnp.asarray, arrays)))


SAME = np.array([[0.6, 0.8], [0.6, 0.8]]), np.array([[0], [1]])


def test_one_query_with_two_labels_costs_their_entropy():
    counts = np.array([3.0, 1.0])
    p = counts / 4
    for_all = -(counts * np.log(p)).sum()

    def solver(queries, labels, theta_0, counts):
        return hindsight(queries, labels, tau=0.5, theta_0=theta_0, counts=counts, tolerance=1e-9)

    got = solve(solver, *SAME, np.zeros((2, 2)), counts)
    assert got.converged
    np.testing.assert_allclose(got.loss, for_all, rtol=1e-12)
    z = np.asarray(got.theta) @ SAME[0][0] / 0.5
    np.testing.assert_allclose(np.exp(z) / np.exp(z).sum(), p, atol=1e-8)


def separable():
    return np.array([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]]), np.array([[0], [1], [2]])


def test_separable_data_have_no_hindsight_optimum():
    def solver(queries, labels, theta_0, tolerances):
        def one(tolerance):
            return hindsight(queries, labels, tau=1.0, theta_0=theta_0, tolerance=tolerance)

        found = jax.lax.map(one, tolerances)
        return found, jax.vmap(lambda theta: margin(theta, queries, labels))(found.theta)

    tolerances = np.array([1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
    found, margins = solve(solver, *separable(), np.zeros((3, 2)), tolerances)
    assert found.converged.all()
    assert (margins > 0).all()
    assert (np.diff(np.linalg.norm(found.theta, axis=(1, 2))) > 1.0).all()
    assert (found.loss[1:] < 0.2 * found.loss[:-1]).all()
    assert found.loss[-1] < 1e-4


def test_the_margin_is_the_least_lead_of_a_label():
    theta = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    queries = jnp.array([[0.9, 0.2], [0.3, 0.4]])
    np.testing.assert_allclose(margin(theta, queries, jnp.array([[0], [1]])), 0.1, rtol=1e-5)
    np.testing.assert_allclose(margin(theta, queries, jnp.array([[0], [0]])), -0.1, rtol=1e-5)


def test_the_proximal_comparator_is_finite_on_separable_data():
    queries, labels = separable()
    eta, rng = 2.0, np.random.default_rng(0)
    theta_1 = rng.normal(size=(3, 2))

    def solver(q, l, theta_1):
        return proximal(q, l, theta_1, eta=eta, tau=0.7, tolerance=1e-12)

    found = solve(solver, queries, labels, theta_1)
    assert found.converged
    assert found.iterations > 0
    assert np.linalg.norm(found.theta) < 100.0


def test_the_proximal_comparator_satisfies_its_optimality_condition():
    rng = np.random.default_rng(1)
    queries, labels = rng.normal(size=(300, 5)), rng.integers(0, 9, (300, 1))
    theta_1, counts, eta = rng.normal(size=(9, 5)), rng.integers(0, 4, 300).astype(float), 0.02

    def solver(q, l, theta_1, counts, tau):
        return proximal(q, l, theta_1, eta=eta, tau=tau, counts=counts, tolerance=1e-13)

    for tau in (0.1, 1.0):
        got = solve(solver, queries, labels, theta_1, counts, tau)
        assert got.converged
        _, c = losses_and_steps(got.theta, queries, labels, tau)
        gradient = (counts[:, None] * c).T @ queries / tau
        np.testing.assert_allclose(gradient, -(got.theta - theta_1) / eta, atol=1e-7)


def test_the_certificates_hold_for_a_search_that_stops_early():
    rng = np.random.default_rng(2)
    queries, labels = rng.normal(size=(50, 4)), rng.integers(0, 6, (50, 1))
    theta_1, limits = rng.normal(size=(6, 4)), np.array([0, 1, 3, 6, 500])

    def solver(q, l, theta_1, limits):
        def one(limit):
            return proximal(q, l, theta_1, eta=0.5, tau=0.5, tolerance=1e-14, max_iterations=limit)

        return jax.lax.map(one, limits)

    found = solve(solver, queries, labels, theta_1, limits)
    np.testing.assert_array_equal(found.converged, [False, False, False, False, True])
    np.testing.assert_array_equal(found.iterations[:-1], limits[:-1])
    apart = np.linalg.norm(found.theta - found.theta[-1], axis=(1, 2))[:-1]
    above = (found.objective - found.objective[-1])[:-1]
    assert (apart > 0).all()
    assert (apart <= found.distance[:-1]).all()
    assert (above > 0).all()
    assert (above <= found.gap[:-1]).all()


def test_float32_reaches_the_default_tolerance_in_a_few_iterations():
    rng = np.random.default_rng(3)
    queries = rng.normal(size=(500, 32)).astype(np.float32) / np.sqrt(32)
    theta_1 = rng.normal(size=(60, 32)).astype(np.float32) / np.sqrt(32)
    labels = rng.integers(0, 60, (500, 1))
    got = jax.jit(partial(proximal, eta=1e-4, tau=0.05))(queries, labels, theta_1)
    assert got.theta.dtype == jnp.float32
    assert got.converged
    assert got.iterations <= 10
    assert float(got.objective) < 500 * np.log(1e6)


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


COMPILED = jax.jit(partial(in_ball, tau=TAU, tolerance=1e-10))


def solved(q, labels, theta, radius=RADIUS, counts=None, max_iterations=5000):
    with jax.enable_x64(True):
        counts = np.ones(len(q)) if counts is None else counts
        options = {"radius": radius, "counts": counts, "max_iterations": max_iterations}
        return jax.tree.map(np.asarray, COMPILED(q, labels, theta_0=theta, **options))


def test_plain_projected_gradient_in_numpy_finds_the_same_minimum():
    q, labels, theta = make_data()
    found = solved(q, labels, theta)
    for _ in range(4000):
        theta = theta - 0.01 * loss_and_gradient(theta, q, labels)[1]
        theta /= np.maximum(np.linalg.norm(theta, axis=1, keepdims=True) / RADIUS, 1.0)
    assert found.converged
    assert found.loss == pytest.approx(loss_and_gradient(theta, q, labels)[0], abs=1e-6)


def test_rows_are_in_the_ball_even_if_the_data_are_separable():
    q = np.eye(3)
    found = solved(q, np.array([[0], [1], [2]]), np.zeros((3, 3)))
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
    counts = np.random.default_rng(0).integers(1, 4, len(q)).astype(float)
    weighed = solved(q, labels, theta, counts=counts)
    times = counts.astype(int)
    repeated = solved(np.repeat(q, times, axis=0), np.repeat(labels, times, axis=0), theta)
    assert weighed.loss == pytest.approx(repeated.loss, abs=1e-7)
    with jax.enable_x64(True):
        each = losses(jnp.asarray(weighed.theta), jnp.asarray(q), jnp.asarray(labels), tau=TAU)
        assert weighed.loss == pytest.approx(float(counts @ np.asarray(each)))
