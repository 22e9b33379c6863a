"""Two small tasks, environments with many effects, and a learner that records its feedback."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import drift, feedback, interventions
from jaxret.environments.environment import Environment
from jaxret.learners.learner import Learner, where_observed
from jaxret.types import Stream


class Told(NamedTuple):
    """Records the feedback in order of arrival, in arrays of C slots."""

    count: int
    query: np.ndarray  # [C, d]
    item: np.ndarray
    propensity: np.ndarray
    reward: np.ndarray


def make_task(items=8, width=6, queries=40, labels=2, seed=0) -> jr.Task:
    """Make a task of random unit vectors; every second query has only its first label."""
    rng = np.random.default_rng(seed)
    theta, vectors = rng.normal(size=(items, width)), rng.normal(size=(queries, width))
    right = np.stack([rng.permutation(items)[:labels] for _ in range(queries)])
    right[::2, 1:] = -1
    theta, vectors = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (theta, vectors))
    return jr.Task.from_arrays(theta, vectors, right, name="small")


def make_scribe(capacity: int, *, spy=lambda feedback: None) -> Learner:
    """Make a learner that samples tools from its softmax, never updates and records feedback."""
    inner = jr.orag(tau=0.5, eta=0.0)

    def init(theta, available=None):
        state = inner.init(theta, available)
        blank = jnp.zeros(capacity, theta.dtype)
        told = Told(
            count=jnp.zeros((), jnp.int32),
            query=jnp.zeros((capacity, theta.shape[1]), theta.dtype),
            item=jnp.zeros(capacity, jnp.int32),
            propensity=blank,
            reward=blank,
        )
        return state._replace(extra=told)

    def update(state, query, choice, feedback):
        spy(feedback)
        told, line = state.extra, (query, choice.item, choice.propensity, feedback.reward)
        lists = [one.at[told.count].set(x) for one, x in zip(told[1:], line, strict=True)]
        new = state._replace(extra=Told(told.count + 1, *lists))
        return where_observed(feedback, state, new)

    return inner._replace(name="scribe", init=init, update=update)


def make_stream(task: jr.Task, order) -> Stream:
    """Make a stream of the task's queries in a given order."""
    order = jnp.asarray(order, jnp.int32)
    return Stream(jnp.asarray(task.queries), jnp.asarray(task.labels), order)


@pytest.fixture(scope="session")
def stream() -> Callable[..., Stream]:
    """Return `make_stream`, a function of a task and an order."""
    return make_stream


@pytest.fixture(scope="session")
def task() -> jr.Task:
    return make_task()


@pytest.fixture(scope="session")
def scribe() -> Callable[..., Learner]:
    """Return `make_scribe`, a function of the number of answers to record."""
    return make_scribe


@pytest.fixture(scope="session")
def sixteen() -> jr.Task:
    """Make a task of 16 items and 20 queries with two labels each."""
    rng = np.random.default_rng(0)
    unit = lambda *shape: (x := rng.normal(size=shape)) / np.linalg.norm(x, axis=1)[:, None]  # noqa: E731
    labels = np.stack([rng.permutation(16)[:2] for _ in range(20)])
    return jr.Task.from_arrays(unit(16, 8), unit(20, 8), labels, name="small")


@pytest.fixture(scope="session")
def blocked_effects(sixteen) -> Environment:
    """Return every effect that has a blocked form, for 60 rounds of `sixteen`."""
    ids = np.arange(16)
    return Environment(
        noise_rate=jnp.asarray(ids / 40.0),
        reranker=feedback.position_biased_clicks(),
        arrives=jnp.asarray(np.where(ids % 5 == 1, 20, 0)),
        leaves=jnp.asarray(np.where(ids % 5 == 2, 40, 60)),
        rotation=drift.turning(sixteen.queries, angle=1.0, rounds=60),
        drift=drift.swapped(sixteen.labels, share=0.5, at=30),
        poison=feedback.poisoned(items=16, queries=20, share=0.2),
        censoring=feedback.censored_by_success(after_success=0.1, after_failure=0.4),
    )


@pytest.fixture(scope="session")
def all_effects(sixteen, blocked_effects) -> Environment:
    """Add the interventions to `blocked_effects`."""
    after = np.roll(sixteen.theta, 1, axis=0)
    return blocked_effects._replace(
        delay=interventions.Delay(jnp.full(10, 1 / 10)),
        rewriting=interventions.rewritten_documents(sixteen.theta, after, at=35),
        restart=interventions.restart_from_snapshot(saved=10, at=45),
    )
