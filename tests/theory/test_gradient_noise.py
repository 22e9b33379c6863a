"""Lemma 3.1 on runs: sums in NumPy, and the equality of mean squares."""

from functools import partial

import numpy as np
import pytest

import jaxret as jr
from jaxret.theory import gradient_noise
from tests.theory.conftest import evidence_of, failing, losses_and_steps, near_tools, stated

TAU = 0.5
SEEDS = 300
simulate = partial(jr.simulate, exposures=3, seeds=SEEDS, form="scan")


@pytest.fixture(scope="module")
def task():
    return near_tools(items=5, width=4, queries=20, noise=0.5, seed=2)


@pytest.fixture(scope="module")
def orag(task):
    run = simulate(jr.orag(tau=TAU, eta=0.02), task)
    return run, stated(run, task.theta)["Lemma 3.1, accumulated"]


def root_of(statement):
    return statement.bound.terms["root of the summed variance"]


def test_the_noise_of_eq_4_is_only_in_the_rows_of_the_right_tools(task, orag):
    run, statement = orag
    y, pi = (np.asarray(x, np.float64) for x in (run.trace.reward, run.trace.propensity))
    p = np.exp(-np.asarray(run.trace.loss, np.float64))
    for seed in range(3):
        noise = np.zeros(task.theta.shape)
        for n, weight in zip(run.order[seed], 1 - y[seed] / pi[seed], strict=True):
            noise[task.labels[n, 0]] += weight * task.queries[n] / TAU
        assert statement.estimate.values[seed] == pytest.approx(np.linalg.norm(noise), rel=1e-4)
    root = np.sqrt((1 / p - 1).sum(axis=1).mean()) / TAU
    assert root_of(statement) == pytest.approx(root)
    assert statement.value == pytest.approx(root * np.sqrt(1 + 19 / SEEDS))


def test_means_of_squares_are_equal(orag):
    _, statement = orag
    squares = statement.estimate.values**2
    error = squares.std(ddof=1) / np.sqrt(len(squares))
    assert squares.mean() == pytest.approx(root_of(statement) ** 2, abs=4 * error)
    assert 5 * error < squares.mean()
    assert statement.holds
    assert statement.measured < root_of(statement)


def test_the_mean_of_two_runs_rarely_exceeds_their_value(orag):
    """Half of the means of two runs exceed sqrt(variance), but few exceed the bound."""
    _, statement = orag
    pairs, root = statement.estimate.values.reshape(-1, 2).mean(axis=1), root_of(statement)
    assert 0.2 < np.mean(pairs > root) < 0.8
    assert np.mean(pairs > root * np.sqrt(1 + 19 / 2)) <= 0.05


def test_a_rule_that_moves_one_row_has_no_more_noise_and_meets_theorem_5_1(task):
    run = simulate(jr.chosen_only(tau=TAU, eta=0.02, projection=jr.projections.none()), task)
    u = task.theta
    for _ in range(20):  # towards the smallest loss
        u = u - 0.05 * losses_and_steps(u, task.queries, task.labels, TAU)[1].T @ task.queries
    statements = stated(run, u)
    lemma, theorem = statements["Lemma 3.1, accumulated"], statements["Theorem 5.1"]
    assert lemma.holds
    assert np.mean(lemma.estimate.values**2) < root_of(lemma) ** 2
    assert theorem.holds
    measured = theorem.estimate
    assert 1 < measured.mean < measured.mean + 5 * measured.error < theorem.value


def test_tools_that_are_not_drawn_from_p_are_noticed(task):
    evidence = evidence_of(simulate(jr.greedy(tau=TAU, eta=0.02), task), task.theta)
    statement = gradient_noise.lemma_3_1(evidence, np.zeros((SEEDS, *task.theta.shape)))
    assert {"items drawn from p", "success as frequent as p says"} <= {*failing(statement.bound)}
