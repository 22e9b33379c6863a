"""Theorem 5.1 with the cost of its projection, by enumeration of choices and of whole runs."""

import itertools
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

import jaxret as jr
from jaxret.theory import projected
from tests.theory.conftest import evidence_of, failing, near_tools, stated, unit

PROJECTIONS = {"free": jr.projections.none(), "ball": jr.ball(), "sphere": jr.sphere()}


def rows_after(theta, q, c, tau, eta, name):
    """Compute the rows before and after the projection with NumPy."""
    x = theta - eta / tau * np.outer(c, q)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    factor = {"free": 1.0, "ball": 1 / np.maximum(length, 1), "sphere": 1 / length}[name]
    return x, factor * x


@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_costs_of_a_round_are_those_of_enumeration(name):
    tau, eta, label = 0.3, 0.4, 2
    rule = jr.orag(tau=tau, eta=eta, projection=PROJECTIONS[name]).structure
    costs = jax.jit(partial(projected.expected_costs, rule))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        theta, u = unit(rng.normal(size=(2, 5, 3))) * np.array([1.0, 0.9])[:, None, None]
        q = unit(rng.normal(size=3))
        p = softmax(theta @ q / tau)
        total, stretched = 0.0, 0.0
        for item in range(5):
            c = p - (np.arange(5) == item) * (item == label) / p[item]
            x, after = rows_after(theta, q, c, tau, eta, name)
            delta = ((after - u) ** 2).sum(axis=1) - ((x - u) ** 2).sum(axis=1)
            step = eta / 2 * np.sum(c**2) * (q @ q) / tau**2
            total += p[item] * (step + delta.sum() / (2 * eta))
            short = np.linalg.norm(x, axis=1) < np.linalg.norm(after, axis=1) * (1 - 1e-12)
            stretched += p[item] * delta[short].sum() / (2 * eta)
        with jax.enable_x64(True):
            got = costs(theta, q, label, u)
        np.testing.assert_allclose(got, (total, stretched), rtol=1e-9, atol=1e-9)
        if name == "free":
            clean = np.sum(p**2) - 2 * p[label] + 1 / p[label]
            assert total == pytest.approx(eta / 2 * clean / tau**2)
        if name == "ball":
            assert stretched == 0


@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_bound_exceeds_the_exact_expected_regret_of_a_short_run(name):
    """Sum both sides over all 3^4 sequences of choices, weighted by their probabilities."""
    rng = np.random.default_rng(1)
    theta_1, u = unit(rng.normal(size=(2, 3, 3)))
    queries, labels = unit(rng.normal(size=(4, 3))), np.array([0, 2, 1, 2])
    tau, eta = 0.4, 0.05
    rule = jr.orag(tau=tau, eta=eta, projection=PROJECTIONS[name]).structure
    regret, bound, probabilities = 0.0, 0.0, 0.0
    with jax.enable_x64(True):
        costs = jax.jit(partial(projected.expected_costs, rule))
        for draws in itertools.product(range(3), repeat=4):
            theta, chance, run_regret = theta_1, 1.0, 0.0
            run_bound = ((theta_1 - u) ** 2).sum() / (2 * eta)
            for q, label, item in zip(queries, labels, draws, strict=True):
                z, z_u = theta @ q / tau, u @ q / tau
                p = softmax(z)
                run_regret += logsumexp(z) - z[label] - logsumexp(z_u) + z_u[label]
                run_bound += float(costs(theta, q, label, u)[0])
                chance *= p[item]
                c = p - (np.arange(3) == item) * (item == label) / max(p[item], 1e-99)
                theta = rows_after(theta, q, c, tau, eta, name)[1]
            regret += chance * run_regret
            bound += chance * run_bound
            probabilities += chance
    assert probabilities == pytest.approx(1.0)
    assert regret < bound


@pytest.fixture(scope="module")
def task():
    return near_tools(items=6, width=4, queries=30, noise=0.5, seed=2)


@pytest.fixture(scope="module", params=PROJECTIONS)
def run(request, task):
    learner = jr.orag(tau=0.5, eta=0.05, projection=PROJECTIONS[request.param])
    return request.param, jr.simulate(learner, task, seeds=64, form="scan")


def test_the_value_is_that_of_duality_plus_the_distance_at_the_end(run, task):
    """The two differ by a martingale, whose spread 64 seeds estimate."""
    (name, run), u = run, unit(task.theta + 0.3)
    statements = stated(run, u)
    ours = statements["Theorem 5.1, projection counted"]
    assert ours.holds
    end = ((np.asarray(run.states.theta, np.float64) - u) ** 2).sum(axis=(1, 2)) / (2 * 0.05)
    other = statements["duality"].value + end.mean()
    assert ours.value == pytest.approx(other, abs=5 * end.std() / 8)
    if name != "free":
        assert ours.value < statements["Theorem 5.1"].value or name == "sphere"
    assert (ours.bound.terms["stretched rows"] == 0) == (name != "sphere")
    if name == "free":
        for learner, assumption in (
            (jr.chosen_only(tau=0.5, eta=0.05), "a failure teaches"),
            (jr.greedy(tau=0.5, eta=0.05), "mean of the estimator"),
        ):
            evidence = evidence_of(replace(run, learner=learner), u)
            bound = projected.with_projection(evidence, np.zeros((2, *run.order.shape)))
            assert any(name.startswith(assumption) for name in failing(bound))
