"""The duality bound: against NumPy, at equality, and refused for unsupported learners."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.special import softmax

import jaxret as jr
from jaxret.theory import duality, rerun
from tests.slow import slowly
from tests.theory.conftest import losses_and_steps, near_tools

TAU = 0.2


def make_task():
    """Make a task whose queries have one right tool, or two."""
    made = near_tools(items=6, width=4, queries=30, noise=0.7, seed=5)
    first = made.labels[:, 0]
    second = np.where(np.arange(30) % 2, (first + 1 + first % 3) % 6, -1)
    return jr.Task.from_arrays(made.theta, made.queries, np.stack([first, second], axis=1))


TASK = make_task()
LEARNERS = {
    "sphere": jr.orag(tau=TAU, eta=0.02),
    "query map": jr.mapped(tau=TAU, eta=0.02, rate=1.0),
    "free rows, likelihood": jr.greedy(tau=TAU, eta=0.02, projection=jr.projections.none()),
    "replay of bits": jr.greedy_replayed(tau=TAU, eta=0.02),
    "an oracle": jr.full_information(tau=TAU, eta=0.02),
}


def simulate(learner):
    environment = None if learner.facts.oracle else jr.label_noise(0.2)
    options = {"exposures": 2, "seeds": 3, "form": "scan"}
    return jr.simulate(learner, TASK, environment=environment, **options)


@cache
def found_for(name):
    run = simulate(LEARNERS[name])
    return run, duality.dual(run, TAU)


@pytest.fixture(params=slowly(LEARNERS, {"free rows, likelihood", "an oracle"}))
def found(request):
    return found_for(request.param)


def test_no_comparator_beats_it_on_any_seed(found):
    run, found = found
    rng = np.random.default_rng(0)
    ours = np.asarray(run.trace.loss, np.float64).sum(axis=1)
    for size in (0.0, 0.3, 1.0, 3.0):
        u = size * rng.normal(size=TASK.theta.shape) + (rng.random() < 0.5) * TASK.theta
        theirs = losses_and_steps(u, TASK.queries, TASK.labels, TAU)[0][run.order].sum(axis=1)
        product = (found.residual * u).sum(axis=(1, 2))
        assert (ours - theirs <= found.loss - found.entropy - product + 1e-3).all()
        assert duality.against_one(found, u).value == pytest.approx(
            (found.loss - found.entropy - product).mean()
        )


def test_the_bound_of_a_ball_is_that_of_its_worst_comparator(found):
    _, found = found
    for radius in (0.5, 2.0):
        rows = -found.residual / np.linalg.norm(found.residual, axis=2, keepdims=True)
        each = found.loss - found.entropy - radius * (found.residual * rows).sum(axis=(1, 2))
        bound = duality.against_ball(found, radius, radius)
        assert bound.value == pytest.approx(each.mean())
        assert bound.holds
        assert not duality.against_ball(found, radius, 1.1 * radius).holds


def test_a_learner_that_does_not_move_attains_the_bound():
    run = simulate(jr.orag(tau=TAU, eta=1e-12))
    bound = duality.against_one(duality.dual(run, TAU), TASK.theta)
    assert bound.value == pytest.approx(0.0, abs=1e-3)


def test_residuals_and_entropies_are_those_of_the_rounds_in_numpy():
    sphere, found = found_for("sphere")
    theta, residual, entropy = np.asarray(TASK.theta, np.float64), 0.0, 0.0
    for t, n in enumerate(sphere.order[0]):  # Algorithm 1 on the sphere, with the bits of the run
        q = TASK.queries[n].astype(np.float64)
        p = softmax(theta @ q / TAU)
        _, c = losses_and_steps(theta, q[None], TASK.labels[n : n + 1], TAU)
        residual = residual + np.outer(c, q / TAU)
        entropy -= p @ np.log(p)
        c = p.copy()
        item = sphere.trace.item[0, t]
        c[item] -= sphere.trace.reward[0, t] / p[item]
        theta = theta - 0.02 / TAU * np.outer(c, q)
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    np.testing.assert_allclose(found.residual[0], residual, atol=2e-3)
    assert found.entropy[0] == pytest.approx(entropy, rel=1e-3)
    assert duality.against_one(found, TASK.theta).holds

    items = (np.asarray(sphere.trace.item) + 1) % 6
    other = replace(sphere, trace=sphere.trace._replace(item=items))
    assert not duality.against_one(duality.dual(other, TAU), TASK.theta).holds


def test_runs_that_cannot_be_computed_again_are_refused():
    sphere, _ = found_for("sphere")
    moving = jr.Environment(arrives=np.array([0, 0, 0, 0, 0, 9]))
    with pytest.raises(ValueError, match="orag ran with arrives: its rounds cannot be computed"):
        rerun.rerun(replace(sphere, environment=moving), (), None)
