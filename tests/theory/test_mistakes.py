"""Bounds on wrong tools: steps of their proofs by enumeration, and runs below the bounds."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import jaxret as jr
from jaxret.learners.bandits.perceptrons import gap_map
from jaxret.rules.estimators import banditron as perceptron
from jaxret.rules.estimators import expected_coefficients
from jaxret.testing import quick_jit
from jaxret.theory import mistakes
from jaxret.theory.regret import comparator
from tests.theory.conftest import evidence_of, failing, losses_and_steps, near_tools, stated, unit

# One length, number of seeds and form, so that runs of one learner share a program.
simulate = partial(jr.simulate, exposures=20, seeds=3, form="scan")


@pytest.fixture(scope="module")
def task():
    near = near_tools(items=4, width=6, queries=50, noise=0.3, seed=3)
    return jr.Task.from_arrays(unit(near.theta + 0.8), near.queries, near.labels, name="four")


def test_the_second_moment_of_the_perceptron_step():
    items, epsilon = 5, 0.2
    pi = np.full(items, epsilon / items)
    pi[1] += 1 - epsilon
    square = perceptron()._replace(coefficients=lambda obs: perceptron().coefficients(obs) ** 2)

    @quick_jit
    def moment(target):
        p = jnp.asarray([0.1, 0.5, 0.1, 0.2, 0.1])
        return expected_coefficients(square, p, target, propensity=jnp.asarray(pi)).sum()

    assert moment(1) == pytest.approx(1 / pi[1] - 1, rel=1e-5)  # the right tool is the best
    assert moment(3) == pytest.approx(1 + items / epsilon, rel=1e-5)


def test_the_hinge_loss_bounds_the_product_with_the_gradient():
    rng, hinges = np.random.default_rng(0), quick_jit(mistakes.hinges)
    for _ in range(50):
        u, w, q = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=3)
        label, best = rng.integers(4), np.argmax(w @ q)
        margins = [1 - (u[label] - u[r]) @ q for r in range(4) if r != label]
        hinge = float(hinges(u, q[None], np.array([label]))[0])
        assert hinge == pytest.approx(max(0, *margins), abs=1e-5)
        if best != label:
            assert 1 - hinge <= (u[label] - u[best]) @ q + 1e-5
            assert (w[best] - w[label]) @ q >= 0


def solved(task, counts, **settings):
    weights = jnp.full(len(task), counts, jnp.float32)
    theta, queries, labels = map(jnp.asarray, (task.theta, task.queries, task.labels[:, 0]))
    return mistakes.solve_banditron(theta, queries, labels, weights, **settings)


@pytest.mark.parametrize("radius", [None, 1.0])
def test_the_solved_bound_is_its_formula_at_its_comparator(task, radius):
    step, epsilon, times = 0.01, 0.3, 200
    found = solved(task, times, step=step, epsilon=epsilon, radius=radius)
    e = found.scale * step
    x = e / 2 * (1 + 4 / epsilon)
    u = found.scale * found.comparator.astype(np.float64)
    if radius is not None:
        assert np.linalg.norm(found.comparator, axis=1).max() <= 1 + 1e-5
    z, rows = task.queries @ u.T, np.arange(len(task))
    right = z[rows, task.labels[:, 0]].copy()
    z[rows, task.labels[:, 0]] = -np.inf
    hinge = times * np.maximum(1 - right + z.max(axis=1), 0).sum()
    start = ((found.scale * task.theta - u) ** 2).sum() / (2 * e)
    best, rounds = 1 - epsilon + epsilon / 4, 50 * times
    value = (hinge + start + e / 2 * rounds * (1 / best - 1)) / (1 - x)
    assert found.value == pytest.approx(value + epsilon * rounds * 3 / 4, rel=1e-4)


def test_the_bound_per_round_falls_with_the_rounds(task):
    each = [
        solved(task, times, step=0.01, epsilon=0.1, radius=None).value / (50 * times)
        for times in (1, 10, 100, 1000)
    ]
    assert each == sorted(each, reverse=True)
    assert each[-1] < 0.5 < each[0]


def test_banditron_meets_its_bound_which_another_set_policy_or_noise_voids(task):
    options = {"tau": 1.0, "eta": 0.05, "projection": jr.projections.none()}
    run = jr.simulate(
        jr.banditron(epsilon=0.2, **options), task, exposures=100, seeds=4, form="scan"
    )
    found = stated(run, task.theta)["Banditron"]
    assert found.holds
    assert found.quantity == "wrong tools"
    assert found.measured == pytest.approx((1 - np.asarray(run.trace.success)).sum(axis=1).mean())
    assert found.measured < found.value < 5000

    def failed(**changes):
        evidence = evidence_of(run, task.theta)
        rule = evidence.rule._replace(**changes)
        return failing(mistakes.banditron(evidence._replace(rule=rule)).bound)

    assert failed(projection=jr.sphere()) == ["comparator in a convex set"]
    assert "shown epsilon-greedily" in failed(policy=jr.policies.softmax())
    assert "Banditron" not in stated(replace(run, environment=jr.label_noise(0.1)), task.theta)


def test_the_gap_pays_for_exploring_and_for_the_variance():
    """1 - pi* + (e / 2 ln 2) ||p - 1[i*]||^2 / pi* <= l / ln 2 + gamma, at Gaptron's own step."""
    rng, n = np.random.default_rng(0), 3000
    shown = quick_jit(lambda gamma, z: jax.vmap(gap_map(gamma=gamma).probabilities)(z))
    for items in (2, 3, 50):
        z = rng.normal(size=(n, items)) * rng.choice([0.1, 1, 4, 12], size=(n, 1))
        labels, rows = rng.integers(items, size=n), np.arange(n)
        p = softmax(z, axis=1)
        p_label = p[rows, labels]
        gradient = p - (np.arange(items) == labels[:, None])
        for gamma in (0.01, 0.1, 0.7):
            e = gamma / (2 * items**2)
            pi_label = np.asarray(shown(gamma, z))[rows, labels]
            paid = e / (2 * np.log(2)) * (gradient**2).sum(axis=1) / pi_label
            assert (1 - pi_label + paid <= -np.log2(p_label) + gamma + 1e-6).all()


def test_gaptron_meets_its_bound_at_its_own_step_alone(task):
    gamma, tau = 0.3, 0.1
    own = tau**2 * gamma / (2 * 4**2)
    run = simulate(jr.gaptron(gamma=gamma, tau=tau, eta=0.5 * own), task)
    found = stated(run, task.theta)["Gaptron"]
    assert found.holds
    assert found.measured < found.value
    assert found.bound.terms["exploring"] == pytest.approx(gamma * 1000, rel=1e-3)
    evidence = evidence_of(run, task.theta)
    longer = evidence._replace(rule=evidence.rule._replace(eta=1.1 * own))
    assert failing(mistakes.gaptron(longer).bound) == ["step over Gaptron's own"]


def least_over_balls(task, times, eta):
    """Minimise ``times`` summed losses + ||Theta_1 - U||^2 / (2 eta) at tau = 1, in nats.

    Return the minima over U with rows in the unit ball and over all U, from projected gradient
    descent in NumPy.
    """
    theta, queries = np.asarray(task.theta, float), np.asarray(task.queries, float)
    found = []
    for radius in (1.0, np.inf):
        u, values = theta.copy(), []
        for _ in range(300):
            losses, c = losses_and_steps(u, queries, task.labels, 1.0)
            values.append(times * losses.sum() + ((u - theta) ** 2).sum() / (2 * eta))
            u = u - (times * c.T @ queries + (u - theta) / eta) / (times * len(queries) + 1 / eta)
            u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True) / radius, 1)
        found.append(min(values))
    return found


def test_gaptrons_comparator_lies_in_the_ball(task):
    """A comparator outside of the ball would give a smaller bound, which is not proved."""
    gamma, times = 0.3, 20
    eta = gamma / (2 * 4**2)
    run = simulate(jr.gaptron(gamma=gamma, tau=1.0, eta=eta), task)
    found = mistakes.gaptron(evidence_of(run, comparator(run).theta))
    inside, anywhere = (
        least / np.log(2) + gamma * 50 * times for least in least_over_balls(task, times, eta)
    )
    assert failing(found.bound) == []
    assert found.value >= inside * (1 - 1e-5)
    assert anywhere < 0.95 * inside
