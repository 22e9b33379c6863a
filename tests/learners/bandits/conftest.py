"""What the field's learners are taught in these tests: rounds of anybody's choosing, in float64."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback, State


class Rounds(NamedTuple):
    """T rounds with I tools of width d, all on the host."""

    theta: np.ndarray  # [I, d]
    queries: np.ndarray  # [T, d]
    items: np.ndarray  # [T]
    propensities: np.ndarray  # [T]
    rewards: np.ndarray  # [T]


def make_rounds(items=5, width=6, rounds=60, seed=0) -> Rounds:
    """Unit vectors, and bits of tools drawn evenly."""
    rng = np.random.default_rng(seed)
    theta, queries = rng.normal(size=(items, width)), rng.normal(size=(rounds, width))
    return Rounds(
        theta=theta / np.linalg.norm(theta, axis=1, keepdims=True),
        queries=queries / np.linalg.norm(queries, axis=1, keepdims=True),
        items=rng.integers(items, size=rounds),
        propensities=rng.uniform(0.2, 1.0, size=rounds),
        rewards=rng.integers(2, size=rounds).astype(float),
    )


def teach(learner, rounds: Rounds) -> Iterator[State]:
    """The state before the first round and after each."""
    update = quick_jit(learner.update)
    state = quick_jit(learner.init)(jnp.asarray(rounds.theta))
    yield state
    for query, item, propensity, reward in zip(*rounds[1:], strict=True):
        choice = Choice(jnp.asarray(item, jnp.int32), jnp.asarray(propensity))
        state = update(state, jnp.asarray(query), choice, Feedback(jnp.asarray(reward)))
        yield state


@pytest.fixture(scope="session")
def rounds() -> Callable[..., Rounds]:
    """Call it for rounds."""
    return make_rounds


@pytest.fixture(scope="session")
def taught() -> Callable[..., list[State]]:
    """Call it for the states [T + 1] of a learner, in float64 on the host."""

    def states(learner, rounds):
        with jax.enable_x64(True):
            return [jax.device_get(state) for state in teach(learner, rounds)]

    return states


@pytest.fixture
def float64():
    """Everything within is computed in float64."""

    @contextmanager
    def on():
        with jax.enable_x64(True):
            yield

    return on
