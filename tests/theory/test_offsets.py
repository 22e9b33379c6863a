"""Statements about runs with offsets: Theorem 5.1 by enumeration, and loops in NumPy."""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import jaxret as jr
from jaxret.learners.learner import query_for
from jaxret.testing import quick_jit
from jaxret.theory import duality, offsets
from jaxret.theory.regret import comparator
from jaxret.types import Choice, Feedback, Prior, Query

BALL = {"tau": 0.4, "eta": 0.05, "projection": jr.ball()}
WEIGHT, STRENGTH, TAU = 0.3, 0.8, 0.4
simulate = partial(jr.simulate, exposures=2, seeds=8, form="scan")


def informed(**settings):
    return jr.with_balance(jr.with_lexical(jr.orag(**{**BALL, **settings}), WEIGHT), STRENGTH)


@pytest.fixture(scope="module")
def run(small):
    rng = np.random.default_rng(1)
    prior = np.where(rng.random((60, 12)) < 0.4, rng.random((60, 12)), 0)
    available = np.arange(12) != 5
    labels = rng.permuted(np.tile(np.flatnonzero(available), (60, 1)), axis=1)[:, 0]
    given = small(prior=prior)
    task = jr.Task.from_arrays(
        given.theta, given.queries, labels, prior=prior, available=available, name="one absent"
    )
    return simulate(informed(), task)


def test_theorem_5_1_holds_by_enumeration_of_every_draw():
    """Two tools, four rounds: sum over all paths the regret and the bound, for several U."""
    rng, rounds = np.random.default_rng(0), 4
    learner = informed(projection=jr.projections.none(), eta=0.3)
    theta = rng.normal(size=(2, 3))
    queries, prior = rng.normal(size=(rounds, 3)), rng.random((rounds, 2))
    labels, eta = rng.integers(0, 2, rounds), 0.3
    scale = (1 - WEIGHT) / TAU
    others = theta + np.array([1.0, 0.3, 0.05])[:, None, None] * rng.normal(size=(3, 2, 3))
    with jax.enable_x64(True):
        update = jax.jit(learner.update)
        regret, variance, mass = np.zeros(3), 0.0, 0.0
        for path in product(range(2), repeat=rounds):
            state = learner.init(jnp.asarray(theta))
            chance, own, compared, moment = 1.0, 0.0, np.zeros(3), 0.0
            for q, x, right, item in zip(queries, prior, labels, path, strict=True):
                usage = np.asarray(state.extra[2].mean)
                added = WEIGHT * x / TAU - STRENGTH * np.log(usage)
                p = softmax(np.asarray(state.theta) @ q * scale + added)
                own -= np.log(p[right])
                compared -= log_softmax(others @ q * scale + added, axis=1)[:, right]
                moment += (1 / p[right] - 2 * p[right] + 1) * (q @ q) * scale**2
                chance *= p[item]
                query = Query(jnp.asarray(q), Prior(jnp.arange(2), jnp.asarray(x)))
                choice = Choice(jnp.asarray(item), jnp.asarray(p[item]))
                state = update(state, query, choice, Feedback(jnp.asarray(float(item == right))))
            mass += chance
            regret += chance * (own - compared)
            variance += chance * moment
    assert mass == pytest.approx(1.0)
    for i, u in enumerate(others):
        bound = ((theta - u) ** 2).sum() / (2 * eta) + eta / 2 * variance
        assert regret[i] <= bound


def test_the_comparator_is_given_the_offsets_of_each_round(run):
    """Replay usage, and the comparator's losses with it, in NumPy."""
    found, products = jr.regret(run), duality.dual(run, TAU / (1 - WEIGHT)).offsets
    u = np.asarray(found.comparator.theta, np.float64)  # without the absent tool
    rows, scale = np.flatnonzero(run.task.available), (1 - WEIGHT) / TAU
    prior = run.task.prior_scores()[:, rows]
    for s in range(2):
        theta, usage, count = run.task.theta[rows].astype(np.float64), np.ones(11), 20.0
        total, product = 0.0, 0.0
        trace = jax.tree.map(lambda x, s=s: np.asarray(x[s]), run.trace)
        for t, query in enumerate(run.order[s]):
            q = run.task.queries[query].astype(np.float64)
            added = WEIGHT * prior[query] / TAU - STRENGTH * np.log(usage)
            z = theta @ q * scale + added
            label = np.flatnonzero(rows == run.task.labels[query, 0])[0]
            loss = -log_softmax(z)[label]
            assert loss == pytest.approx(trace.loss[t], rel=1e-3, abs=1e-4)
            total += loss + log_softmax(u @ q * scale + added)[label]
            p, item = softmax(z), np.flatnonzero(rows == trace.item[t])[0]
            product += p @ added - added[label]
            c = p - (np.arange(11) == item) * trace.reward[t] / p[item]
            theta = theta - BALL["eta"] * scale * np.outer(c, q)
            length = np.linalg.norm(theta, axis=1, keepdims=True)
            theta = theta / np.maximum(length, 1.0)
            count += 1
            usage = usage + (11 * softmax(z + STRENGTH * np.log(usage)) - usage) / count
        assert found.final.values[s] == pytest.approx(total, rel=1e-3, abs=0.05)
        assert products[s] == pytest.approx(product, rel=1e-3)


def test_the_comparator_is_the_best_by_the_offsets_of_the_prior(run):
    """It minimises the loss with the prior's offsets: no neighbour in the ball is better."""
    best = comparator(run)
    assert bool(best.converged)
    rows = np.flatnonzero(run.task.available)
    labels = np.array([np.flatnonzero(rows == one)[0] for one in run.task.labels[:, 0]])
    added = WEIGHT / TAU * run.task.prior_scores()[:, rows]
    np.testing.assert_allclose(offsets.of_queries(run), added, rtol=1e-5, atol=1e-6)

    def loss(theta):
        z = run.task.queries @ theta.T * (1 - WEIGHT) / TAU + added
        return -log_softmax(z, axis=1)[np.arange(60), labels].sum()

    def gradient(theta):
        p = softmax(run.task.queries @ theta.T * (1 - WEIGHT) / TAU + added, axis=1)
        return (p - np.eye(11)[labels]).T @ run.task.queries * (1 - WEIGHT) / TAU

    rng, u = np.random.default_rng(0), np.asarray(best.theta, np.float64)
    steps = [0.05 * rng.normal(size=u.shape) for _ in range(20)]
    for step in [*steps, -0.1 * gradient(u)]:
        near = u + step
        near /= np.maximum(np.linalg.norm(near, axis=1, keepdims=True), 1.0)
        assert loss(near) > loss(u) - 5e-3


def test_the_proximal_comparator_is_given_the_offsets_of_the_prior(run):
    """The gradient of its objective vanishes: ``(U - Theta_1) / eta`` plus that of the losses."""
    free = replace(run, learner=informed(projection=jr.projections.none()))
    u = np.asarray(comparator(free).theta, np.float64)
    rows, scale = np.flatnonzero(run.task.available), (1 - WEIGHT) / TAU
    added = WEIGHT / TAU * run.task.prior_scores()[:, rows]
    p = softmax(run.task.queries @ u.T * scale + added, axis=1)
    slope = 2 * (p - (rows == run.task.labels)).T @ run.task.queries * scale  # two exposures
    np.testing.assert_allclose(slope + (u - run.task.theta[rows]) / BALL["eta"], 0, atol=1e-2)


def test_every_bound_holds_and_duality_holds_for_every_seed(run):
    statements = jr.bounds(run)
    names = [one.bound.name for one in statements]
    assert {"Theorem 5.1", "Corollary 5.2", "duality", "Lemma 3.1, accumulated"} <= {*names}
    for one in statements:
        assert one.bound.holds, one
        assert one.estimate.mean <= one.value
    [dual] = [one.bound for one in statements if one.bound.name == "duality"]
    found = duality.dual(run, TAU / (1 - WEIGHT)).offsets.mean()
    assert dual.terms["residuals times offsets"] == pytest.approx(-found)


def test_the_start_and_the_bias_count_the_offsets(run):
    task, rows = run.task, np.flatnonzero(run.task.available)
    noisy = simulate(run.learner, task, environment=jr.label_noise(0.2))
    [statement] = [one for one in jr.bounds(noisy) if one.name == "Theorem B.2"]
    assert statement.holds, statement
    # the offsets of a round cancel: the bias is that of rows at Theta_t and at U
    u = np.asarray(statement.regret.comparator.theta, np.float64)
    total, scale = np.zeros(3), (1 - WEIGHT) / TAU
    update = quick_jit(noisy.learner.update)
    for s in range(3):
        state = noisy.learner.init(jnp.asarray(task.theta), jnp.asarray(task.available))
        for t, n in enumerate(noisy.order[s, :11]):
            apart = (np.asarray(state.theta, np.float64)[rows] - u) @ task.queries[n] * scale
            total[s] += (2 * (rows == task.labels[n]) - 1) @ apart
            prior = jax.tree.map(lambda x, n=n: jnp.asarray(x[n]), task.prior)
            query = query_for(noisy.learner, jnp.asarray(task.queries[n]), prior)
            choice = Choice(noisy.trace.item[s, t], noisy.trace.propensity[s, t])
            state = update(state, query, choice, Feedback(noisy.trace.reward[s, t]))
    of_u = ((2 * (rows == task.labels) - 1) * (task.queries @ u.T)).sum(axis=1) * scale
    of_run = 2 * noisy.trace.logit_label - noisy.trace.logit_sum
    each = of_run - statement.regret.offsets.bias - of_u[noisy.order]
    np.testing.assert_allclose(each[:3, :11].sum(axis=1), total, rtol=1e-2, atol=0.05)
    terms = statement.bound.terms
    assert terms["bias"] == pytest.approx(-0.2 * each.sum(axis=1).mean(), rel=1e-3)


def test_bounds_of_mistakes_are_left_out(run):
    """Their proofs are about ``Theta q`` alone."""
    gaptron = jr.with_lexical(jr.gaptron(gamma=0.2, tau=1.0, eta=0.1))
    names = [one.name for one in jr.bounds(replace(run, learner=gaptron))]
    assert "Theorem 5.1" in names
    assert "Gaptron" not in names
