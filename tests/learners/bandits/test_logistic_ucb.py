"""Logistic UCB: its step against a minimiser, its bonus against the sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

from jaxret.learners.bandits.logistic_ucb import logistic_ucb, proximal_step
from jaxret.testing import check_learner

ALPHA, RIDGE, TAU, CENTRE = 0.7, 0.5, 0.2, 0.3
SETTINGS = {"alpha": ALPHA, "ridge": RIDGE, "tau": TAU, "centre": CENTRE}


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(logistic_ucb(start=start))


@pytest.mark.parametrize("start", ["document", "zero"])
def test_its_step_minimises_what_chapelle_and_li_minimise(rounds, taught, start):
    world = rounds(rounds=25)
    world.rewards[3] = 0.3  # how well it worked, which is no bit
    learner = logistic_ucb(**SETTINGS, start=start)
    states = taught(learner, world)
    document = start == "document"
    w, h, offset = document * world.theta / TAU, RIDGE * np.ones((5, 6)), document * CENTRE / TAU
    for q, a, y in zip(world.queries, world.items, world.rewards, strict=True):

        def loss(new, q=q, a=a, y=y):
            z = new @ q - offset
            return 0.5 * h[a] @ (new - w[a]) ** 2 + np.logaddexp(0, z) - y * z

        def slope(new, q=q, a=a, y=y):
            return h[a] * (new - w[a]) + (expit(new @ q - offset) - y) * q

        w[a] = optimize.minimize(loss, w[a], jac=slope, method="BFGS", options={"gtol": 1e-9}).x
        p = expit(w[a] @ q - offset)
        h[a] += p * (1 - p) * q**2
    np.testing.assert_allclose(states[-1].theta / TAU, w, atol=1e-6)
    np.testing.assert_allclose(1 / states[-1].extra, h, rtol=1e-6)
    with jax.enable_x64(True):
        scores = learner.scores(states[-1], jnp.asarray(world.queries[:3]))
    np.testing.assert_allclose(scores, expit(world.queries[:3] @ w.T - offset), atol=1e-6)


def test_it_shows_the_best_mean_with_its_bonus(rounds, float64):
    """Tools whose Hessians differ as much as their means."""
    world, rng = rounds(items=30, rounds=20), np.random.default_rng(1)
    learner, h = logistic_ucb(**SETTINGS), 10 ** rng.uniform(-1, 2, size=(30, 6))
    best = []
    with float64():
        state = learner.init(jnp.asarray(world.theta))._replace(extra=jnp.asarray(1 / h))
        for query in world.queries:
            means = world.theta @ query / TAU
            upper = means + ALPHA * np.sqrt((query**2 / h).sum(axis=1))
            best.append((upper.argmax(), means.argmax()))
            slate = learner.act(state, jnp.asarray(query), jax.random.key(0))
            assert (slate.items[0], slate.propensity[0]) == (best[-1][0], 1)
            chances = learner.chances(state, jnp.asarray(query))
            np.testing.assert_array_equal(chances, np.arange(30) == best[-1][0])
    assert sum(a != b for a, b in best) >= 3


@pytest.mark.parametrize("reward", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("width", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("logit", [-30.0, -1.0, 0.5, 20.0])
def test_the_step_solves_its_equation(float64, logit, width, reward):
    def excess(s):
        return s - reward + expit(logit + s * width)

    expected = optimize.brentq(excess, reward - 1, reward, xtol=1e-15)
    with float64():
        got = proximal_step(*map(jnp.asarray, (logit, width, reward)))
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize(("name", "value"), [("alpha", -1.0), ("ridge", 0.0), ("tau", 0.0)])
def test_settings_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be >=? 0, got {value}"):
        logistic_ucb(**{name: value})
