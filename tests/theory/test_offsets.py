"""Statements about runs with offsets: Theorem 5.1 by enumeration, and loops in NumPy."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import jaxret as jr
from jaxret.theory import duality, offsets
from jaxret.theory.regret import comparator
from jaxret.types import Choice, Feedback, Prior, Query

BALL = {"tau": 0.4, "eta": 0.05, "projection": jr.ball()}
WEIGHT, STRENGTH, TAU = 0.3, 0.8, 0.4


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
    return jr.simulate(informed(), task, exposures=2, seeds=8)


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


def test_the_proximal_comparator_is_given_the_offsets_of_the_prior(small):
    """The gradient of its objective vanishes: ``(U - Theta_1) / eta`` plus that of the losses."""
    task = small(prior=np.random.default_rng(3).random((60, 12)))
    free = jr.simulate(informed(projection=jr.projections.none()), task)
    u = np.asarray(comparator(free).theta, np.float64)
    scale, added = (1 - WEIGHT) / TAU, WEIGHT / TAU * task.prior_scores()
    p = softmax(task.queries @ u.T * scale + added, axis=1)
    slope = (p - np.eye(12)[task.labels[:, 0]]).T @ task.queries * scale
    np.testing.assert_allclose(slope + (u - task.theta) / BALL["eta"], 0, atol=1e-2)


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


def test_the_start_and_the_bias_count_the_offsets(small):
    rng = np.random.default_rng(2)
    task = small(prior=rng.random((60, 12)))
    noisy = jr.simulate(informed(), task, seeds=12, environment=jr.label_noise(0.2), exposures=2)
    statements = {one.bound.name: one for one in jr.bounds(noisy)}
    bound = statements["Theorem B.2"].bound
    assert bound.holds, bound
    # the offsets of a round cancel: the bias is that of rows at Theta_t and at U
    u = np.asarray(statements["Theorem B.2"].regret.comparator.theta, np.float64)
    total, scale = np.zeros(12), (1 - WEIGHT) / TAU
    start = np.asarray(noisy.learner.init(jnp.asarray(task.theta)).theta)
    for s in range(12):
        theta = start.astype(np.float64)
        state = noisy.learner.init(jnp.asarray(task.theta))
        for t, query in enumerate(noisy.order[s]):
            q, label = task.queries[query] * scale, task.labels[query, 0]
            theta = np.asarray(state.theta, np.float64)
            apart = (theta - u) @ q
            total[s] += 2 * apart[label] - apart.sum()
            if t == 10:
                break
            items, scores = (jnp.asarray(x[query]) for x in task.prior)
            width = noisy.learner.facts.prior_width - len(items)
            prior = Prior(
                jnp.pad(items, (0, width), constant_values=-1), jnp.pad(scores, (0, width))
            )
            given = Query(jnp.asarray(task.queries[query]), prior)
            choice = Choice(noisy.trace.item[s, t], noisy.trace.propensity[s, t])
            state = noisy.learner.update(state, given, choice, Feedback(noisy.trace.reward[s, t]))
    evidence = offsets.measured(noisy, jnp.asarray(u, jnp.float32), jnp.asarray(start))
    trace = noisy.trace
    of_u = 2 * (u[task.labels[:, 0]] * task.queries).sum(1) - task.queries @ u.sum(0)
    of_run = 2 * trace.logit_label - trace.logit_sum
    each = of_run - evidence.bias - scale * of_u[noisy.order]
    np.testing.assert_allclose(each[:, :11].sum(axis=1), total, rtol=1e-2, atol=0.05)
    assert bound.terms["bias"] == pytest.approx(-0.2 * each.sum(axis=1).mean(), rel=1e-3)


def test_bounds_of_mistakes_are_left_out(small):
    """Their proofs are about ``Theta q`` alone."""
    task = small(prior=np.random.default_rng(4).random((60, 12)))
    run = jr.simulate(jr.with_lexical(jr.gaptron(gamma=0.2, tau=1.0, eta=0.1)), task, seeds=2)
    names = [one.bound.name for one in jr.bounds(run)]
    assert "Theorem 5.1" in names
    assert "Gaptron" not in names
