"""Two small tasks, and environments with many effects."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import drift, feedback, interventions
from jaxret.environments.environment import Environment
from tests.problems import make_problem


def make_task(items, width, queries, seed=0) -> jr.Task:
    """Make a task of random unit vectors; queries have two labels or, every second one, one."""
    catalogue, stream = make_problem(items, width, queries, seed=seed)
    return jr.Task.from_arrays(catalogue.theta, stream.queries, stream.labels, name="small")


@pytest.fixture(scope="session")
def task() -> jr.Task:
    return make_task(items=8, width=6, queries=40)


@pytest.fixture(scope="session")
def sixteen() -> jr.Task:
    return make_task(items=16, width=8, queries=20)


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
