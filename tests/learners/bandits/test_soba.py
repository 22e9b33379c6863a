"""SOBA, diagonal, against its algorithm on vectors of K d numbers, as the paper writes it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.soba import soba
from jaxret.testing import check_learner
from jaxret.types import Choice, Feedback

RIDGE, TAU = 0.5, 0.5


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(soba(start=start))


def by_the_paper(world, start):
    """W, A and the margin after all rounds; and how many successes were left out."""
    k, d = world.theta.shape
    unit = np.eye(k)
    a = RIDGE * np.ones(k * d)
    w = (world.theta / TAU if start == "document" else np.zeros((k, d))).ravel()
    dual, margin, left_out = a * w, 0.0, 0
    for x, item, pi, y in zip(*world[1:], strict=True):
        if y == 0:
            continue
        wx = w.reshape(k, d) @ x
        rival = max((i for i in range(k) if i != item), key=lambda i: wx[i])
        g = np.kron(unit[rival] - unit[item], x) / pi
        z = np.sqrt(pi) * g
        m = ((w @ z) ** 2 + 2 * w @ g) / (1 + z @ (z / a))
        if m + margin >= 0:
            a, dual, margin = a + z * z, dual - g, margin + m
        else:
            left_out += 1
        w = dual / a
    return w.reshape(k, d), a.reshape(k, d), margin, left_out


@pytest.mark.parametrize("start", ["document", "zero"])
def test_it_is_the_algorithm_of_the_paper(rounds, taught, start):
    world = rounds(rounds=150)
    world.items[:40] = (world.queries @ world.theta.T).argmax(axis=1)[:40]
    world.rewards[:40] = 1  # successes that nobody wonders at
    state = taught(soba(ridge=RIDGE, tau=TAU, start=start), world)[-1]
    w, a, margin, left_out = by_the_paper(world, start)
    np.testing.assert_allclose(state.theta / TAU, w, atol=1e-10)
    np.testing.assert_allclose(state.extra.diagonal, a, atol=1e-10)
    np.testing.assert_allclose(state.extra.margin, margin, atol=1e-9)
    assert world.rewards.sum() - 10 > left_out > (10 if start == "document" else -1)


def test_the_rival_is_there_and_a_tool_that_is_alone_has_none(float64):
    learner = soba(ridge=RIDGE, tau=TAU)
    theta = np.array([[1.0, 0], [0.9, 0.1], [0.6, 0.8]])
    with float64():
        query = jnp.array([0.6, 0.8])
        choice = Choice(jnp.asarray(0), jnp.asarray(0.5))
        for here, moved in [([1, 1, 0], [1, 1, 0]), ([1, 0, 0], [0, 0, 0])]:
            state = learner.init(jnp.asarray(theta), jnp.asarray(here, bool))
            new = learner.update(state, query, choice, Feedback(jnp.asarray(1.0)))
            got = np.abs(new.theta - theta).max(axis=1) > 0
            np.testing.assert_array_equal(got, np.array(moved, bool))


def test_a_failure_teaches_nothing(rounds, taught):
    world = rounds()
    world.rewards[:] = 0
    states = taught(soba(), world)
    for got, expected in zip(jax.tree.leaves(states[-1]), jax.tree.leaves(states[0]), strict=True):
        if expected.dtype == float:
            np.testing.assert_array_equal(got, expected)


def test_it_shows_the_best_and_any_tool_in_a_share_of_the_rounds(rounds, taught):
    world, learner = rounds(), soba(gamma=0.4)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 0)
    with jax.enable_x64(True):
        chances = learner.chances(state, jnp.asarray(world.queries[0]))
        slate = learner.act(state, jnp.asarray(world.queries[0]), jax.random.key(3))
    expected = 0.1 * (np.arange(5) != 0)
    expected[1 + (state.theta @ world.queries[0])[1:].argmax()] += 0.6
    np.testing.assert_allclose(chances, expected, atol=1e-12)
    np.testing.assert_allclose(slate.propensity[0], expected[slate.items[0]], atol=1e-12)


@pytest.mark.parametrize(("name", "value"), [("gamma", 0.0), ("ridge", 0.0), ("tau", 0.0)])
def test_settings_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be "):
        soba(**{name: value})
