"""Two small tasks, environments with many effects, and single updates of a run."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import drift, feedback, interventions
from jaxret.environments.environment import Environment
from jaxret.learners.learner import query_for
from tests.problems import make_problem


def make_task(items, width, queries, seed=0) -> jr.Task:
    """Make a task of random unit vectors; queries have two labels or, every second one, one."""
    catalogue, stream = make_problem(items, width, queries, seed=seed)
    return jr.Task.from_arrays(catalogue.theta, stream.queries, stream.labels, name="small")


@cache
def updating(learner):
    return jax.jit(learner.update)


def taught(run, state, t):
    """Update a state with the query, choice and reward of round t of the first seed."""
    learner, task, n = run.learner, run.task, run.order[0][t]
    prior = jax.tree.map(lambda x: jnp.asarray(x[n]), task.prior)
    choice = jr.Choice(run.trace.item[0, t], run.trace.propensity[0, t])
    labels = task.labels[n] if learner.facts.oracle else None
    answer = jr.Feedback(run.trace.reward[0, t], True, labels)
    query = query_for(learner, jnp.asarray(task.queries[n]), prior)
    return updating(learner)(state, query, choice, answer)


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
