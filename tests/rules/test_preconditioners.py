"""Preconditioners against a matrix inverse and an explicit sum."""

import jax.numpy as jnp
import numpy as np

from jaxret.rules import preconditioners


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
