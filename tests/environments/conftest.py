"""A small task, and a learner that only writes down what it is told."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners.learner import Learner, where_observed
from jaxret.types import Stream


class Told(NamedTuple):
    """The answers, in the order in which they came; C places."""

    count: int
    query: np.ndarray  # [C, d]
    item: np.ndarray
    propensity: np.ndarray
    reward: np.ndarray


def make_task(items=8, width=6, queries=40, labels=2, seed=0) -> jr.Task:
    """Random unit vectors; every second query has all its labels."""
    rng = np.random.default_rng(seed)
    theta, asked = rng.normal(size=(items, width)), rng.normal(size=(queries, width))
    right = np.stack([rng.permutation(items)[:labels] for _ in range(queries)])
    right[::2, 1:] = -1
    theta, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (theta, asked))
    return jr.Task.from_arrays(theta, asked, right, name="small")


def make_scribe(capacity: int, *, spy=lambda feedback: None) -> Learner:
    """Draws tools by its softmax, learns nothing, and keeps every answer that it is given."""
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

    return inner._replace(name="scribe", init=init, update=update, rule=None, relearn=None)


def make_stream(task: jr.Task, order) -> Stream:
    """The task's queries in an order."""
    order = jnp.asarray(order, jnp.int32)
    return Stream(jnp.asarray(task.queries), jnp.asarray(task.labels), order)


@pytest.fixture(scope="session")
def stream() -> Callable[..., Stream]:
    """Call it with a task and an order."""
    return make_stream


@pytest.fixture(scope="session")
def task() -> jr.Task:
    return make_task()


@pytest.fixture(scope="session")
def scribe() -> Callable[..., Learner]:
    """Call it with room for so many answers."""
    return make_scribe
