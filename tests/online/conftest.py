"""A small retrieval problem for the online tests."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.online import streams
from jaxret.types import Catalogue, Stream


def make_problem(items=40, width=8, queries=20, times=5, labels=2, seed=0):
    """Random unit vectors in the precision of the day; every second query has all its labels."""
    rng = np.random.default_rng(seed)
    theta, query = rng.normal(size=(items, width)), rng.normal(size=(queries, width))
    table = np.stack([rng.permutation(items)[:labels] for _ in range(queries)])
    table[::2, 1:] = -1
    catalogue = Catalogue(
        theta=jnp.asarray(theta / np.linalg.norm(theta, axis=1, keepdims=True)),
        available=jnp.asarray(rng.random(items) < 0.9),
    )
    stream = Stream(
        queries=jnp.asarray(query / np.linalg.norm(query, axis=1, keepdims=True)),
        labels=jnp.asarray(table, jnp.int32),
        order=jnp.asarray(streams.exposures(queries, times, seed)),
    )
    return catalogue, stream


@pytest.fixture(scope="session")
def problem() -> Callable[..., tuple[Catalogue, Stream]]:
    """Call it, inside `jax.enable_x64` where float64 is wanted, for a catalogue and a stream."""
    return make_problem
