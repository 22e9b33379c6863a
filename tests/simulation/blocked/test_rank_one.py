"""The end of a block: pending updates are applied to all rows, in parts or at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.simulation.blocked.rank_one import apply_pending

B, D = 4, 64


def block(items):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((items, D), (B, items), (B, D), items)]
    return [np.asarray(x, np.float32) for x in arrays]


def by_loop(theta, pending, u, factor, weights):
    """Compute the final rows and the sums over the initial rows, step by step in float64."""
    rows, sums = theta.astype(np.float64), np.zeros((B, D))
    for line in range(B):
        for item, row in enumerate(theta):
            sums[line] += weights[line, item] * row
            rows[item] -= pending[line, item] * u[line]
    return rows * factor[:, None], sums


@pytest.mark.parametrize("items", [12, 16, 23])  # one part; two; two and a remainder
@pytest.mark.parametrize("projected", [True, False])
def test_parts_of_rows_are_what_a_loop_gives(items, projected):
    theta, pending, u, factor = block(items)
    factor = factor if projected else np.ones(items, np.float32)
    weights = np.ascontiguousarray(pending[::-1])
    arrays = [jnp.asarray(x) for x in (theta, pending, u)]
    rows, sums = apply_pending(
        *arrays, jnp.asarray(factor) if projected else None, jnp.asarray(weights), part=8
    )
    expected, expected_sums = by_loop(theta, pending, u, factor, weights)
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, expected_sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("with_sums", [True, False])
def test_parts_need_no_second_theta(with_sums):
    def room(part):
        apply = jax.jit(lambda *arrays: apply_pending(*arrays, part=part), donate_argnums=0)
        return apply.lower(*arrays).compile().memory_analysis().temp_size_in_bytes

    arrays = [jnp.asarray(x) for x in block(8192)]
    arrays += [arrays[1]] if with_sums else []
    assert room(8192) >= arrays[0].nbytes
    assert room(64) < arrays[0].nbytes / 4
