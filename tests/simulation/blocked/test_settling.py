"""The end of a block: some rows at a time are all rows at once, without room for a second Theta."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.simulation.blocked.settling import settled

B, D = 4, 64


def block(items):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in ((items, D), (B, items), (B, D), items)]
    return [jnp.asarray(x, jnp.float32) for x in arrays]


@pytest.mark.parametrize("items", [16, 20, 23])  # as many parts as there are, and some over
@pytest.mark.parametrize("projected", [True, False])
def test_parts_are_the_whole(items, projected):
    theta, pending, u, factor = block(items)
    factor = factor if projected else None
    weights = pending[::-1]
    rows, sums = settled(theta, pending, u, factor, weights, part=8)
    whole, asked = settled(theta, pending, u, factor, weights)
    np.testing.assert_allclose(rows, whole, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, asked, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums, np.asarray(weights) @ np.asarray(theta), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("asked", [True, False])
def test_parts_need_no_second_theta(asked):
    def room(part):
        whole = jax.jit(lambda *arrays: settled(*arrays, part=part), donate_argnums=0)
        return whole.lower(*arrays).compile().memory_analysis().temp_size_in_bytes

    arrays = block(8192)
    arrays += [arrays[1]] if asked else []
    assert room(8192) >= arrays[0].nbytes
    assert room(64) < arrays[0].nbytes / 4
