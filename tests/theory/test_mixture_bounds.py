"""What is proved of a mixture, on runs, against enumeration of all paths and in float64."""

import itertools

import numpy as np
import pytest

import jaxret as jr
from jaxret.theory import mixture as theory

TAUS = [0.02, 0.1, 0.5]


def experts():
    return [jr.grid(jr.frozen, tau=TAUS), jr.grid(jr.greedy, tau=[0.1], eta=0.03)]


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(5)
    theta = rng.normal(size=(6, 4))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(6, size=30)
    queries = theta[labels] + 0.7 * rng.normal(size=(30, 4))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return jr.Task.from_arrays(theta, queries, labels, name="six")


def run_of(task, **settings):
    return jr.simulate(jr.mixture(experts(), **settings), task, exposures=3, seeds=4)


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"alpha": 0.05}, {"beta": 0.5}, {}])
@pytest.mark.parametrize("noise", [None, 0.3])
def test_the_loss_is_within_its_bound_on_every_seed(task, settings, noise):
    learner = jr.mixture(experts(), **settings)
    environment = None if noise is None else jr.label_noise(noise)
    run = jr.simulate(learner, task, exposures=3, seeds=4, environment=environment)
    statement = jr.bounds(run)[0]
    assert statement.holds
    assert statement.quantity == "log loss"
    losses = np.asarray(run.states.extra.losses, np.float64)
    prior, alpha, beta = 0.25, learner.structure.alpha, learner.structure.beta
    rounds = run.order.shape[1]
    share = (rounds - 1) * np.log(1 / (1 - alpha + alpha * prior))
    limits = losses[:, 1:].min(axis=1) + (np.log(4) + share) / beta
    np.testing.assert_allclose(statement.value, limits.mean(), rtol=1e-6)
    np.testing.assert_allclose(statement.estimate.values, losses[:, 0], rtol=1e-6)
    assert (losses[:, 0] <= limits + 1e-4).all()


def test_without_a_share_the_loss_is_that_of_bayes_to_the_digit(task):
    """-ln sum_g prior_g exp(-L_g): what a Bayesian mixture loses, whatever the order."""
    run = run_of(task, alpha=0.0)
    losses = np.asarray(run.states.extra.losses, np.float64)
    expected = -np.log(0.25 * np.exp(-losses[:, 1:]).sum(axis=1))
    np.testing.assert_allclose(losses[:, 0], expected, rtol=1e-5)


def test_a_power_above_one_voids_the_statement(task):
    statement = jr.bounds(run_of(task, beta=2.0))[0]
    assert not statement.holds
    assert "FAILS  power of the likelihood: beta 2" in repr(statement)


def test_a_replay_has_the_losses_and_weights_of_the_run(task):
    run = run_of(task, alpha=0.05)
    for place, seed in enumerate(run.seeds):
        history = theory.history(run, seed)
        total = np.concatenate([[history.mixed.sum()], history.losses.sum(axis=0)])
        np.testing.assert_allclose(total, run.states.extra.losses[place], rtol=1e-5)
        mixed = -np.log((history.weights * np.exp(-history.losses)).sum(axis=1))
        np.testing.assert_allclose(history.mixed, mixed, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(history.weights[0], 0.25, rtol=1e-5)
    with pytest.raises(ValueError, match=r"seed must be one of \[0, 1, 2, 3\], got 9"):
        theory.history(run, 9)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_bound_with_switches_is_the_least_over_all_paths(task, k):
    run = run_of(task, alpha=0.1)
    whole = theory.history(run, 1)
    history = theory.History(*(part[:6] for part in whole))
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
    bound = theory.against_switches(history, run.learner.structure, k)
    np.testing.assert_allclose(bound, min(values), rtol=1e-9)
    assert history.mixed.sum() <= bound + 1e-6


def test_equal_priors_give_the_form_in_which_the_fixed_share_is_known(task):
    """ln G + k ln(G / alpha) - (T - 1 - k) ln(1 - alpha + alpha / G), beside the path's loss."""
    run = run_of(task, alpha=0.1)
    history = theory.history(run, 0)
    rounds, experts_, k = *history.losses.shape, 1
    cost = np.log(experts_) + k * np.log(experts_ / 0.1)
    cost -= (rounds - 1 - k) * np.log(1 - 0.1 + 0.1 / experts_)
    sums = np.cumsum(history.losses, axis=0)
    best = min(
        sums[t, g] + sums[-1, h] - sums[t, h]
        for t in range(rounds - 1)
        for g, h in itertools.permutations(range(experts_), 2)
    )
    found = theory.against_switches(history, run.learner.structure, 1)
    np.testing.assert_allclose(found, best + cost, rtol=1e-9)


def test_errors_of_which_it_was_sure_are_counted_and_bounded(task):
    run = run_of(task, alpha=0.0)
    statement = jr.bounds(run)[1]
    for place, seed in enumerate(run.seeds):
        history = theory.history(run, seed)
        wrong = run.trace.reward[place] == 0
        # a failure that costs ln 2 or more is one in which it believed with 1/2 or more
        assert statement.estimate.values[place] == (history.mixed[wrong] >= np.log(2)).sum()
    assert 0 < statement.measured <= statement.value
    assert statement.holds


def test_soft_rewards_are_no_bits(task):
    verdicts = np.full((30, 6), 0.3)
    environment = jr.judged(verdicts)
    run = jr.simulate(jr.mixture(experts()), task, seeds=2, environment=environment)
    one, sure = jr.bounds(run)
    assert one.holds
    assert one.measured <= one.value
    assert not sure.holds


def test_what_cannot_be_is_refused(task):
    run = jr.simulate(jr.greedy(), task)
    with pytest.raises(ValueError, match="'greedy' is no mixture"):
        theory.against_one_expert(run)
    mixed = run_of(task, alpha=0.0)
    history, mixing = theory.history(mixed, 0), mixed.learner.structure
    with pytest.raises(ValueError, match=r"k must be in 0 .. 89, got 90"):
        theory.against_switches(history, mixing, 90)
    with pytest.raises(ValueError, match="alpha must be > 0 for a bound with switches"):
        theory.against_switches(history, mixing, 1)
    with pytest.raises(ValueError, match="beta must be 1"):
        theory.against_switches(history, mixing._replace(beta=0.5), 1)
