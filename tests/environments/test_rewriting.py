"""Documents that are rewritten while rows are learnt: against the formula, row by row."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import rewriting
from jaxret.environments.environment import Environment
from jaxret.simulation.scan import scan_rounds

AT = 25


@pytest.fixture(scope="module")
def after(task):
    """New documents for all tools but the first two."""
    rows = np.random.default_rng(5).normal(size=task.theta.shape)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(np.arange(8)[:, None] < 2, task.theta, rows).astype(np.float32)


def rewritten_rows(learnt, before, after, how):
    """By the words of the module, on the unit sphere."""
    carried = after.astype(np.float64) + learnt - before
    moved = {"keep": learnt, "reset": after, "carry": carried}[how]
    moved = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return np.where((before != after).any(axis=1, keepdims=True), moved, learnt)


@pytest.mark.parametrize("how", ["keep", "reset", "carry"])
def test_rows_are_kept_reset_or_carried_and_learning_goes_on_from_there(task, stream, after, how):
    learner = jr.greedy(tau=0.2, eta=0.05)
    world = Environment(rewriting=rewriting.rewritten(task.theta, after, at=AT, how=how))
    run = jr.simulate(learner, task, environment=world)
    assert run.how == "scan"

    @jax.jit
    def straight(state, order):
        return scan_rounds(learner, state, Environment(), stream(task, order), jax.random.key(0))

    fill = partial(np.pad, constant_values=-1)
    first = straight(learner.init(jnp.asarray(task.theta)), fill(run.order[0][:AT], (0, 40 - AT)))[
        0
    ]
    rows = rewritten_rows(np.asarray(first.theta), task.theta, after, how)
    np.testing.assert_array_equal(rows[:2], first.theta[:2])
    middle = first._replace(theta=rows.astype(np.float32))
    last, trace = straight(middle, fill(run.order[0][AT:], (0, AT)))
    np.testing.assert_allclose(run.states.theta[0], last.theta, atol=1e-5)
    np.testing.assert_array_equal(run.trace.item[0][AT:], trace.item[: 40 - AT])
    assert np.abs(np.asarray(first.theta) - task.theta).max() > 0.01  # something was learnt


def test_all_rows_that_stand_for_a_tool_change_and_the_documents_of_a_guard_too(task, after):
    change = rewriting.rewritten(task.theta, after, at=AT, how="reset")
    learner = jr.guarded(jr.greedy(tau=0.2, eta=0.05), budget=100)
    run = jr.simulate(learner, task.select(range(AT)), environment=Environment(rewriting=change))
    np.testing.assert_allclose(run.states.theta[0][2:], after[2:], atol=1e-6)
    np.testing.assert_allclose(run.states.extra.static[0], after, atol=1e-6)


@pytest.mark.slow
def test_every_expert_of_a_mixture_begins_anew(task, after):
    experts = [jr.grid(jr.frozen, tau=[0.1]), jr.grid(jr.greedy, tau=[0.1, 0.2], eta=0.05)]
    change = rewriting.rewritten(task.theta, after, at=AT, how="reset")
    part = task.select(range(AT))
    run = jr.simulate(jr.mixture(experts), part, environment=Environment(rewriting=change))
    np.testing.assert_allclose(run.states.theta[0], after, atol=1e-6)
    np.testing.assert_allclose(
        run.states.extra.rows[1].theta[0][:, 2:], np.stack([after[2:]] * 2), atol=1e-6
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"at": 0}, "at must be >= 1, got 0"),
        ({"how": "mend"}, "how must be keep, reset or carry, got mend"),
        ({"after": np.ones((3, 6))}, r"shape of after must be \(8, 6\), .* got \(3, 6\)"),
    ],
)
def test_what_cannot_be_rewritten_is_refused(task, changes, message):
    settings = {"after": task.theta, "at": 5} | changes
    with pytest.raises(ValueError, match=message):
        rewriting.rewritten(task.theta, settings.pop("after"), **settings)
