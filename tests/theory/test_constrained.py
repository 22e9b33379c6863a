from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.theory.comparators import in_ball, losses
from tests.theory.conftest import losses_and_steps, unit

RADIUS, TAU = 1.0, 0.3


def make_data(items=6, width=4, queries=15, seed=0):
    rng = np.random.default_rng(seed)
    q = unit(rng.normal(size=(queries, width)))
    return q, rng.integers(0, items, (queries, 1)), rng.normal(size=(items, width))


def loss_and_gradient(theta, q, labels):
    losses, c = losses_and_steps(theta, q, labels, TAU)
    return losses.sum(), c.T @ q / TAU


COMPILED = jax.jit(partial(in_ball, tau=TAU, tolerance=1e-10), static_argnames="radius")


def solve(q, labels, theta, radius=RADIUS, counts=None, max_iterations=5000):
    with jax.enable_x64(True):
        counts = np.ones(len(q)) if counts is None else counts
        options = {"radius": radius, "counts": counts, "max_iterations": max_iterations}
        return jax.tree.map(np.asarray, COMPILED(q, labels, theta_0=theta, **options))


def test_plain_projected_gradient_in_numpy_finds_the_same_minimum():
    q, labels, theta = make_data()
    found = solve(q, labels, theta)
    for _ in range(4000):
        theta = theta - 0.01 * loss_and_gradient(theta, q, labels)[1]
        theta /= np.maximum(np.linalg.norm(theta, axis=1, keepdims=True) / RADIUS, 1.0)
    assert found.converged
    assert found.loss == pytest.approx(loss_and_gradient(theta, q, labels)[0], abs=1e-6)


def test_rows_are_in_the_ball_even_if_the_data_are_separable():
    q = np.eye(3)
    found = solve(q, np.array([[0], [1], [2]]), np.zeros((3, 3)))
    assert found.converged
    assert (np.linalg.norm(found.theta, axis=1) <= RADIUS + 1e-9).all()


def test_the_gap_bounds_the_distance_to_the_minimum_also_when_cut_short():
    q, labels, theta = make_data(seed=1)
    best = solve(q, labels, theta)
    for iterations in (1, 3, 10):
        early = solve(q, labels, theta, max_iterations=iterations)
        assert not early.converged
        assert 0 < early.loss - best.loss <= early.gap


@pytest.mark.parametrize("radius", [0.4, 2.5])
def test_the_certificate_is_that_of_its_own_ball(radius):
    """``<G, Theta> + R sum_i ||G_i||``: without R it is too loose for R < 1 and invalid above."""
    q, labels, theta = make_data(seed=1)
    best = solve(q, labels, theta, radius=radius)
    assert best.converged
    assert np.linalg.norm(best.theta, axis=1).max() == pytest.approx(radius, rel=1e-6)
    for iterations in (0, 3, 10):
        early = solve(q, labels, theta, radius=radius, max_iterations=iterations)
        loss, gradient = loss_and_gradient(early.theta, q, labels)
        lengths = np.linalg.norm(gradient, axis=1)
        by_hand = (gradient * early.theta).sum() + radius * lengths.sum()
        assert early.loss == pytest.approx(loss)
        assert early.gap == pytest.approx(by_hand)
        assert 0 < early.loss - best.loss <= early.gap


def test_counts_weigh_queries_as_repeating_them_does():
    q, labels, theta = make_data(seed=2)
    counts = np.random.default_rng(0).integers(1, 4, len(q)).astype(float)
    weighed = solve(q, labels, theta, counts=counts)
    times = counts.astype(int)
    repeated = solve(np.repeat(q, times, axis=0), np.repeat(labels, times, axis=0), theta)
    assert weighed.loss == pytest.approx(repeated.loss, abs=1e-7)
    with jax.enable_x64(True):
        each = losses(jnp.asarray(weighed.theta), jnp.asarray(q), jnp.asarray(labels), tau=TAU)
        assert weighed.loss == pytest.approx(float(counts @ np.asarray(each)))
