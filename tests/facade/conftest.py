"""A small task made from arrays: tools are asked for in another way than they are described."""

from collections.abc import Callable

import numpy as np
import pytest

import jaxret as jr


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def make_task(items=12, width=8, queries=60, seed=0, **options) -> jr.Task:
    """Random unit vectors; a query lies near its tool, and near what its users have in common."""
    rng = np.random.default_rng(seed)
    theta, habit = unit(rng.normal(size=(2, items, width)))
    labels = rng.integers(items, size=queries)
    noise = rng.normal(size=(queries, width)) / width**0.5
    vectors = unit(0.5 * theta[labels] + 0.6 * habit[labels] + 0.2 * noise)
    options = {"ids": [f"tool_{i}" for i in range(items)], "name": "small"} | options
    return jr.Task.from_arrays(theta, vectors, labels, **options)


@pytest.fixture(scope="session")
def small() -> Callable[..., jr.Task]:
    """Call it for a task."""
    return make_task


@pytest.fixture(scope="session")
def task() -> jr.Task:
    return make_task()
