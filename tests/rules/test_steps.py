"""Projections, schedules and preconditioners, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.rules import preconditioners, projections, schedules

ROWS = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-6.0, 8.0], [1.2, 1.2]])


def test_without_a_projection_rows_stay_where_they_are():
    rows = jnp.asarray(ROWS)
    np.testing.assert_array_equal(projections.project(projections.none(), rows), rows)


@pytest.mark.parametrize("radius", [1.0, 2.0])
def test_a_ball_shortens_long_rows_and_leaves_the_others(radius):
    norms = np.linalg.norm(ROWS, axis=1, keepdims=True)
    expected = np.where(norms > radius, ROWS * radius / np.maximum(norms, 1e-30), ROWS)
    got = projections.project(projections.ball(radius=radius), jnp.asarray(ROWS))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("radius", [1.0, 2.0])
def test_a_sphere_gives_every_row_its_radius_but_a_zero_row(radius):
    got = projections.project(projections.sphere(radius=radius), jnp.asarray(ROWS))
    np.testing.assert_allclose(
        np.linalg.norm(got, axis=1), radius * np.array([1, 1, 0, 1, 1]), 1e-6
    )
    np.testing.assert_allclose(got[0], radius * np.array([0.6, 0.8]), rtol=1e-6)


def test_only_the_sphere_voids_the_bounds():
    inside = np.array([[0.6, 0.8], [-0.6, 0.8]])  # their midpoint tests for convexity
    for projection in (projections.none(), projections.ball(), projections.sphere()):
        middle = jnp.asarray(inside.mean(axis=0, keepdims=True))
        stays = np.allclose(projections.project(projection, middle), middle)
        assert projection.convex == stays


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (schedules.constant(), [1, 1, 1, 1, 1]),
        (schedules.inverse_sqrt(), [1, 2**-0.5, 0.5, 1 / 3, 0.1]),
        (schedules.cosine(rounds=6), [1, 0.5 + 3**0.5 / 4, 0.5, 0, 0]),
    ],
)
def test_schedules_have_the_values_worked_by_hand(schedule, expected):
    with jax.enable_x64(True):
        got = [schedule(jnp.asarray(t, jnp.int32)) for t in (0, 1, 3, 8, 99)]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_the_second_moment_is_inverted():
    queries = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    rule = preconditioners.second_moment(ridge=3.0)
    memory, c = rule.init(5, 4, jnp.float32), jnp.ones(5)
    for t, query in enumerate(queries, start=1):
        memory, same, got = rule.apply(memory, c, jnp.asarray(query))
        moment = (3.0 * np.eye(4) + 4 * queries[:t].T @ queries[:t]) / (3.0 + t)
        np.testing.assert_allclose(got, np.linalg.solve(moment, query), rtol=1e-4)
        np.testing.assert_array_equal(same, c)


def test_a_row_that_has_moved_moves_less():
    rule = preconditioners.by_row()
    memory = rule.init(2, 3, jnp.float32)
    c, u = jnp.array([2.0, 0.0]), jnp.array([0.0, 3.0, 4.0])
    for past in (1, 2):
        memory, got, same = rule.apply(memory, c, u)
        np.testing.assert_allclose(got, [2.0 / np.sqrt(1 + past * 4 * 25), 0.0], rtol=1e-6)
        np.testing.assert_array_equal(same, u)
