"""Bounds on the log loss of a mixture: runs below them, and enumeration of all paths."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import jaxret as jr
from jaxret.theory import mixture as theory

EXPERTS = [jr.grid(jr.frozen, tau=[0.02, 0.1, 0.5]), jr.grid(jr.greedy, tau=[0.1], eta=0.03)]
BAYES = jr.mixture(EXPERTS, alpha=0.0)
SHARED = jr.mixture(EXPERTS, alpha=0.1)


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=(6, 4))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(6, size=30)
    queries = theta[labels] + 0.7 * rng.normal(size=(30, 4))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return jr.Task.from_arrays(theta, queries, labels, name="six")


def simulate(learner, task, **options):
    return jr.simulate(learner, task, exposures=3, seeds=4, form="scan", **options)


@pytest.fixture(scope="module")
def bayes(task):
    return simulate(BAYES, task)


def judge(task, errors):
    """Make an environment whose rewards are wrong for a share of the (query, tool) pairs."""
    right = np.arange(6) == task.labels
    wrong = np.random.default_rng(0).random(right.shape) < errors
    return jr.judged(np.where(wrong, ~right, right).astype(np.float32))


@pytest.fixture(scope="module")
def shared(task):
    return simulate(SHARED, task, environment=judge(task, 0.3))


@pytest.fixture(scope="module")
def histories(shared):
    return [theory.history(shared, seed) for seed in shared.seeds]


@pytest.fixture(scope="module")
def informed(task):
    """Run a power of the likelihood with experts that read the prior scores of the queries."""
    prior = np.random.default_rng(2).random((30, 6))
    known = jr.Task.from_arrays(task.theta, task.queries, task.labels, prior=prior)
    experts = [jr.grid(jr.frozen, tau=[0.1]), jr.grid(jr.hybrid, tau=[0.1], lexical=[0.3, 0.7])]
    return simulate(jr.mixture(experts, beta=0.5), known, environment=jr.label_noise(0.3))


def test_the_loss_is_within_its_bound_on_every_seed(bayes, shared, informed):
    for run in (bayes, shared, informed):
        statement = jr.bounds(run)[0]
        assert statement.holds
        assert statement.quantity == "log loss"
        losses = np.asarray(run.states.extra.losses, np.float64)
        alpha, beta = run.learner.structure.alpha, run.learner.structure.beta
        experts, rounds = losses.shape[1] - 1, run.order.shape[1]
        share = (rounds - 1) * np.log(1 / (1 - alpha + alpha / experts))
        limits = losses[:, 1:].min(axis=1) + (np.log(experts) + share) / beta
        np.testing.assert_allclose(statement.value, limits.mean(), rtol=1e-6)
        np.testing.assert_allclose(statement.estimate.values, losses[:, 0], rtol=1e-6)
        assert (losses[:, 0] <= limits + 1e-4).all()


def test_without_fixed_share_the_loss_is_that_of_a_bayesian_mixture(bayes):
    """-ln sum_g prior_g exp(-L_g), in any order of rounds."""
    losses = np.asarray(bayes.states.extra.losses, np.float64)
    expected = -np.log(0.25 * np.exp(-losses[:, 1:]).sum(axis=1))
    np.testing.assert_allclose(losses[:, 0], expected, rtol=1e-5)


def test_a_power_above_one_voids_the_statement(bayes):
    statement = jr.bounds(replace(bayes, learner=jr.mixture(EXPERTS, beta=2.0)))[0]
    assert not statement.holds
    assert "FAILS  power of the likelihood: beta 2" in repr(statement)


def test_a_history_has_the_losses_and_weights_of_the_run(shared, histories):
    for place, history in enumerate(histories):
        total = np.concatenate([[history.mixed.sum()], history.losses.sum(axis=0)])
        np.testing.assert_allclose(total, shared.states.extra.losses[place], rtol=1e-5)
        mixed = -np.log((history.weights * np.exp(-history.losses)).sum(axis=1))
        np.testing.assert_allclose(history.mixed, mixed, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(history.weights[0], 0.25, rtol=1e-5)


def test_a_history_reads_the_prior_scores_of_the_queries(informed):
    history = theory.history(informed, 2)
    total = np.concatenate([[history.mixed.sum()], history.losses.sum(axis=0)])
    np.testing.assert_allclose(total, informed.states.extra.losses[2], rtol=1e-5)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_bound_with_switches_is_the_least_over_all_paths(histories, k):
    history = theory.History(*(part[:6] for part in histories[1]))
    prior, alpha = np.full(4, 0.25), 0.1
    values = []
    for path in itertools.product(range(4), repeat=6):
        switches = [t for t in range(1, 6) if path[t] != path[t - 1]]
        if len(switches) == k:
            loss = sum(history.losses[t, g] for t, g in enumerate(path)) - np.log(prior[path[0]])
            for t in range(1, 6):
                g = path[t]
                stays = 1 - alpha + alpha * prior[g]
                loss -= np.log(alpha * prior[g] if t in switches else stays)
            values.append(loss)
    bound = theory.against_switches(history, SHARED.structure, k)
    np.testing.assert_allclose(bound, min(values), rtol=1e-9)
    assert history.mixed.sum() <= bound + 1e-6


def test_equal_priors_give_the_textbook_form_of_the_fixed_share(histories):
    """The path's loss + ln G + k ln(G / alpha) - (T - 1 - k) ln(1 - alpha + alpha / G)."""
    history = histories[0]
    rounds, experts_, k = *history.losses.shape, 1
    cost = np.log(experts_) + k * np.log(experts_ / 0.1)
    cost -= (rounds - 1 - k) * np.log(1 - 0.1 + 0.1 / experts_)
    sums = np.cumsum(history.losses, axis=0)
    best = min(
        sums[t, g] + sums[-1, h] - sums[t, h]
        for t in range(rounds - 1)
        for g, h in itertools.permutations(range(experts_), 2)
    )
    found = theory.against_switches(history, SHARED.structure, 1)
    np.testing.assert_allclose(found, best + cost, rtol=1e-9)


def test_sure_errors_are_counted_and_bounded(bayes):
    statement = jr.bounds(bayes)[1]
    for place, seed in enumerate(bayes.seeds):
        history = theory.history(bayes, seed)
        failed = bayes.trace.reward[place] == 0
        # A failure costs at least ln 2 if its tool had a probability of at least 1/2.
        assert statement.estimate.values[place] == (history.mixed[failed] >= np.log(2)).sum()
    assert 0 < statement.measured <= statement.value
    assert statement.holds


def test_soft_rewards_void_the_bound_on_sure_errors(task):
    run = simulate(SHARED, task, environment=jr.judged(np.full((30, 6), 0.3, np.float32)))
    one, sure = jr.bounds(run)
    assert one.holds
    assert one.measured <= one.value
    assert not sure.holds


def test_bad_arguments_are_refused(bayes, histories):
    with pytest.raises(ValueError, match="'greedy' is not a mixture"):
        theory.against_one_expert(replace(bayes, learner=jr.greedy()))
    with pytest.raises(ValueError, match=r"seed must be one of \[0, 1, 2, 3\], got 9"):
        theory.history(bayes, 9)
    for k, mixing, message in (
        (90, BAYES.structure, r"k must be in 0 .. 89, got 90"),
        (1, BAYES.structure, "alpha must be > 0 for a bound with switches"),
        (1, SHARED.structure._replace(beta=0.5), "beta must be 1"),
    ):
        with pytest.raises(ValueError, match=message):
            theory.against_switches(histories[0], mixing, k)
