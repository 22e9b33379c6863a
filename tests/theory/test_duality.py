"""The duality bound: by hand in float64, at its equality, and for rules that no theorem covers."""

import numpy as np
import pytest
from scipy.special import logsumexp

import jaxret as jr
from jaxret.theory import duality, rerun

TAU = 0.2


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=(6, 4))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(6, size=(30, 2))
    labels[::2, 1] = -1  # one right tool, or two
    labels[labels[:, 0] == labels[:, 1], 1] = -1
    queries = theta[labels[:, 0]] + 0.7 * rng.normal(size=(30, 4))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return jr.Task.from_arrays(theta, queries, labels, name="six")


LEARNERS = {
    "sphere": lambda: jr.orag(tau=TAU, eta=0.02),
    "query map": lambda: jr.mapped(tau=TAU, eta=0.02, rate=1.0),
    "free rows, likelihood": lambda: jr.greedy(tau=TAU, eta=0.02, projection=jr.projections.none()),
    "replay of bits": lambda: jr.greedy_replayed(tau=TAU, eta=0.02),
    "an oracle": lambda: jr.full_information(tau=TAU, eta=0.02),
}


@pytest.fixture(scope="module", params=LEARNERS)
def run(request, task):
    environment = None if request.param == "an oracle" else jr.label_noise(0.2)
    return jr.simulate(
        LEARNERS[request.param](), task, exposures=2, seeds=3, environment=environment
    )


def loss(theta, task):
    z = task.queries.astype(np.float64) @ np.asarray(theta, np.float64).T / TAU
    right = np.where(task.labels >= 0, np.take_along_axis(z, task.labels, axis=1), 0).sum(axis=1)
    return logsumexp(z, axis=1) - right / (task.labels >= 0).sum(axis=1)


def test_no_comparator_beats_it_on_any_seed(run, task):
    found = duality.dual(run, TAU)
    rng = np.random.default_rng(0)
    ours = np.asarray(run.trace.loss, np.float64).sum(axis=1)
    for size in (0.0, 0.3, 1.0, 3.0):
        u = size * rng.normal(size=task.theta.shape) + (rng.random() < 0.5) * task.theta
        theirs = loss(u, task)[run.order].sum(axis=1)
        product = (found.residual * u).sum(axis=(1, 2))
        assert (ours - theirs <= found.loss - found.entropy - product + 1e-3).all()
        assert duality.against_one(found, u).value == pytest.approx(
            (found.loss - found.entropy - product).mean()
        )


def test_the_ball_holds_the_worst_comparator(run):
    found = duality.dual(run, TAU)
    for radius in (0.5, 2.0):
        rows = -found.residual / np.linalg.norm(found.residual, axis=2, keepdims=True)
        each = found.loss - found.entropy - radius * (found.residual * rows).sum(axis=(1, 2))
        bound = duality.against_ball(found, radius, radius)
        assert bound.value == pytest.approx(each.mean())
        assert bound.holds
        assert not duality.against_ball(found, radius, 1.1 * radius).holds


def test_it_is_met_with_equality_by_a_rule_that_stands_still(task):
    learner = jr.orag(tau=TAU, eta=1e-12, projection=jr.projections.none())
    run = jr.simulate(learner, task, exposures=2, seeds=2)
    bound = duality.against_one(duality.dual(run, TAU), task.theta)
    assert bound.value == pytest.approx(0.0, abs=1e-3)


def test_residuals_and_entropies_are_those_of_the_rounds_by_hand(task):
    learner = jr.orag(tau=TAU, eta=0.05)
    run = jr.simulate(learner, task, seeds=1)
    theta, residual, entropy = np.asarray(task.theta, np.float64), 0.0, 0.0
    for t, n in enumerate(run.order[0]):  # Algorithm 1 on the sphere, with the bits of the run
        q, labels = task.queries[n].astype(np.float64), task.labels[n]
        p = np.exp(theta @ q / TAU - logsumexp(theta @ q / TAU))
        right = np.isin(np.arange(6), labels[labels >= 0]) / (labels >= 0).sum()
        residual = residual + np.outer(p - right, q / TAU)
        entropy -= p @ np.log(p)
        c = p.copy()
        item = run.trace.item[0, t]
        c[item] -= run.trace.reward[0, t] / p[item]
        theta = theta - 0.05 / TAU * np.outer(c, q)
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    found = duality.dual(run, TAU)
    np.testing.assert_allclose(found.residual[0], residual, atol=2e-3)
    assert found.entropy[0] == pytest.approx(entropy, rel=1e-3)


def test_a_replay_that_is_not_the_run_is_noticed(task):
    run = jr.simulate(jr.orag(tau=TAU, eta=0.05), task, seeds=2)
    other = run.trace._replace(item=(np.asarray(run.trace.item) + 1) % 6)
    found = duality.dual(type(run)(**(vars(run) | {"trace": other})), TAU)
    assert not duality.against_one(found, task.theta).holds
    assert duality.against_one(duality.dual(run, TAU), task.theta).holds


def test_what_cannot_be_played_once_more_is_refused(task):
    moving = jr.Environment(arrives=np.array([0, 0, 0, 0, 0, 9]))
    run = jr.simulate(jr.orag(tau=TAU), task, environment=moving)
    with pytest.raises(ValueError, match="orag ran with arrives: its rounds cannot be computed"):
        rerun.rerun(run, (), lambda nothing, state, line: (nothing, line.reward))
    with pytest.raises(ValueError, match="squarecb has no softmax"):
        duality.dual(jr.simulate(jr.squarecb(), task), TAU)
