"""Banditron, Gaptron and SOBA against their papers, DOGMA's MATLAB code and enumeration."""

from operator import itemgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from jaxret.environments.environment import Environment
from jaxret.learners.bandits.perceptrons import (
    banditron,
    gap_map,
    gaptron,
    soba,
    successes_weighted,
)
from jaxret.learners.rank_one import coefficients
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback, Stream
from tests.learners.bandits.rounds import compute, make_rounds, taught

RIDGE, TAU = 0.5, 0.5
RNG = np.random.default_rng(0)
THETA = RNG.standard_normal((6, 5)).astype(np.float32)
QUERIES = RNG.standard_normal((40, 5)).astype(np.float32)
STREAM = Stream(QUERIES, RNG.integers(0, 6, (40, 1)), np.arange(40))


def rounds_of(learner):
    stream = jax.tree.map(jnp.asarray, STREAM)
    return scan_rounds(learner, learner.init(THETA), Environment(), stream, jax.random.key(3))


@pytest.fixture(scope="module")
def simulated():
    """Return the states and trace of Banditron from zero, with steps 0.5, 2^-12 and 2^-6."""

    def one(eta):
        return rounds_of(banditron(tau=0.5, eta=eta, epsilon=0.3, start="zero"))

    return jax.device_get(quick_jit(jax.vmap(one))(np.float32([0.5, 2.0**-12, 2.0**-6])))


def test_banditron_from_zero_is_the_perceptron_of_the_paper(simulated):
    """Replay the rounds by Algorithm 1, which has neither tau nor a step size."""
    epsilon, (state, trace) = 0.3, jax.tree.map(itemgetter(0), simulated)
    w = np.zeros((6, 5))
    for t in range(40):
        q, best = np.asarray(QUERIES[t], float), int((w @ np.asarray(QUERIES[t])).argmax())
        shown, success = int(trace.item[t]), int(trace.item[t]) == int(STREAM.labels[t, 0])
        chance = epsilon / 6 + (1 - epsilon) * (shown == best)
        np.testing.assert_allclose(trace.propensity[t], chance, rtol=1e-5)
        w[shown] += success / chance * q
        w[best] -= q
    np.testing.assert_allclose(state.theta, w, atol=1e-4)


def test_from_zero_the_step_size_of_banditron_changes_no_choice(simulated):
    _, one, other = simulated[1].item
    np.testing.assert_array_equal(one, other)
    assert len(set(one.tolist())) > 1


def test_the_rows_of_banditron_stay_on_the_sphere():
    state, _ = quick_jit(lambda: rounds_of(banditron(eta=0.01)))()
    np.testing.assert_allclose(np.linalg.norm(state.theta, axis=1), 1.0, atol=1e-5)


def by_the_gap_map(z, gamma):
    """Compute Gaptron's probabilities of exploration over the available tools."""
    p, available = softmax(z), np.isfinite(z)
    share = max(1 - p.max() * (p.max() >= 0.5), gamma)
    return (1 - share) * (np.arange(len(z)) == p.argmax()) + share * available / available.sum()


GAP_MAP = gap_map(gamma=0.05)


def gap_draws(logits, key):
    show = jax.vmap(GAP_MAP.show, (0, None, None))
    return GAP_MAP.probabilities(logits), show(jax.random.split(key, 3000), logits, None)


@pytest.mark.parametrize(
    "z", [[4.0, 0, -np.inf, 1], [0.3, 0.1, -np.inf, 0.2], [20.0, 0, 0, 0], [-np.inf, 0, 0, -9]]
)
def test_gaptron_explores_as_much_as_the_model_is_uncertain(z):
    probabilities, slates = compute(gap_draws, np.array(z), jax.random.key(0))
    expected = by_the_gap_map(np.array(z), 0.05)
    np.testing.assert_allclose(probabilities, expected, atol=1e-12)
    shown = np.bincount(slates.items[:, 0], minlength=4) / 3000
    np.testing.assert_allclose(shown, expected, atol=4 * np.sqrt(0.25 / 3000))
    np.testing.assert_allclose(slates.propensity[:, 0], expected[slates.items[:, 0]], atol=1e-12)


def gaptron_step(z, choice, feedback):
    return coefficients(successes_weighted(), z, choice, feedback, None)


@pytest.mark.parametrize("labels", [[2], [0], [1, 3]])
def test_the_mean_step_of_gaptron_is_the_gradient_of_the_logistic_loss(labels):
    """Enumerate the tools; with several right tools, their losses are added."""
    z = np.array([0.4, 1.0, -0.3, 0.2])
    pi, p, mean = by_the_gap_map(z, 0.3), softmax(z), np.zeros(4)
    for a in range(4):
        mean += pi[a] * compute(gaptron_step, z, Choice(a, pi[a]), Feedback(float(a in labels)))
    expected = len(labels) * p - np.isin(np.arange(4), labels)
    np.testing.assert_allclose(mean, expected, atol=1e-12)


def soba_by_the_paper(world, start):
    """Return W, A and the margin after all rounds, and the number of skipped successes."""
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
def test_soba_is_the_algorithm_of_the_paper(start):
    world = make_rounds(rounds=150)
    world.items[:40] = (world.queries @ world.theta.T).argmax(axis=1)[:40]
    world.rewards[:40] = 1  # successes of tools that score best
    state = taught(soba(ridge=RIDGE, tau=TAU, start=start), world)[-1]
    w, a, margin, left_out = soba_by_the_paper(world, start)
    np.testing.assert_allclose(state.theta / TAU, w, atol=1e-10)
    np.testing.assert_allclose(state.extra.diagonal, a, atol=1e-10)
    np.testing.assert_allclose(state.extra.margin, margin, atol=1e-9)
    assert world.rewards.sum() - 10 > left_out > (10 if start == "document" else -1)


def test_the_rival_of_soba_is_available_and_a_single_tool_has_none():
    learner = soba(ridge=RIDGE, tau=TAU)
    theta = np.array([[1.0, 0], [0.9, 0.1], [0.6, 0.8]])

    def updated(available):
        state, query = learner.init(jnp.asarray(theta), available), jnp.array([0.6, 0.8])
        return learner.update(state, query, Choice(np.int32(0), 0.5), Feedback(1.0)).theta

    for available, moved in [([1, 1, 0], [1, 1, 0]), ([1, 0, 0], [0, 0, 0])]:
        got = np.abs(compute(updated, np.array(available, bool)) - theta).max(axis=1) > 0
        np.testing.assert_array_equal(got, np.array(moved, bool))


@pytest.mark.parametrize("learner", [gaptron(tau=0.1, eta=0.01), soba()], ids=lambda one: one.name)
def test_failures_change_nothing(learner):
    world = make_rounds()
    world.rewards[:] = 0
    states = taught(learner, world)
    np.testing.assert_allclose(states[-1].theta, states[0].theta, atol=1e-14)
    jax.tree.map(np.testing.assert_array_equal, states[-1].extra, states[0].extra)


def test_soba_shows_the_best_tool_and_explores_uniformly():
    world, learner = make_rounds(), soba(gamma=0.4)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 0)
    probabilities = compute(learner.probabilities, state, world.queries[0])
    expected = 0.1 * (np.arange(5) != 0)
    expected[1 + (state.theta @ world.queries[0])[1:].argmax()] += 0.6
    np.testing.assert_allclose(probabilities, expected, atol=1e-12)


# DOGMA is the library of Orabona, an author of SOBA. The numbers are the results of its
# `banditron_multi_train.m` and `soba_diag_multi_train.m`
# (github.com/bahh723/separable-bandit-classification, commit b0bdee5) on this stream under Octave
# 7.3, with gamma 0.2, a 0.1, and `rand` replaced by `DRAWS`.
#
# That code differs from `soba` in successes of a tool that exploration showed: it leaves their m
# out of the sum that must not fall below 0. This stream has two such successes, and both sums
# decide every round alike, so rows and A agree.
DOGMA_RNG = np.random.default_rng(9)
TRUTH, CONTEXTS = DOGMA_RNG.normal(size=(4, 3)), DOGMA_RNG.normal(size=(60, 3))
DRAWS = DOGMA_RNG.random(60)
LABELS = (CONTEXTS @ TRUTH.T).argmax(axis=1)
BANDITRON = [
    [0.32169410255538677, 0.25419710470667434, -1.6698200530752776],
    [1.4536202242365643, 1.6457875011313632, 0.68028191562864682],
    [12.125617649755775, -6.7314616144615487, -5.4547232486896329],
    [-0.5925427344711609, -1.6562288250628359, 1.8598896420952875],
]
SOBA = [
    [0.15736034931876108, 0.045240916129951764, -0.35906424371758178],
    [0.35681041800749724, 1.3796986142983407, -0.2629201577392839],
    [0.17434671212858963, -0.24818852861704133, -1.1010577439360965],
    [-0.68748714165079583, -0.68775321370843578, 0.72118363311972511],
]
SOBA_A = [
    [23.200946918922572, 17.60229235472207, 15.580197118618972],
    [47.18942679239603, 19.84782838763092, 36.23506263348706],
    [36.859102129424194, 23.030565537593915, 11.809457718979516],
    [39.14960709616431, 32.663523097531126, 38.99716197130667],
]


def play(learner):
    """Return the last state and the number of successes of tools that were not the best."""
    state = quick_jit(learner.init)(np.zeros((4, 3)))
    probabilities, update = quick_jit(learner.probabilities), quick_jit(learner.update)
    lucky = 0
    for query, label, draw in zip(CONTEXTS, LABELS, DRAWS, strict=True):
        pi = np.asarray(probabilities(state, query))
        item = int(np.argmax(draw < pi.cumsum()))
        lucky += item == label and item != pi.argmax()
        choice = Choice(np.int32(item), pi[item])
        state = update(state, query, choice, Feedback(np.float64(item == label)))
    return state, lucky


def test_banditron_ends_with_the_rows_of_dogma():
    with jax.enable_x64(True):
        state, lucky = play(banditron(tau=1.0, eta=1.0, epsilon=0.2, start="zero"))
    np.testing.assert_allclose(state.theta, BANDITRON, rtol=1e-12)
    assert lucky > 0


def test_soba_ends_with_the_rows_and_the_a_of_dogma():
    with jax.enable_x64(True):
        state, lucky = play(soba(gamma=0.2, ridge=0.1, tau=1.0, start="zero"))
    np.testing.assert_allclose(state.theta, SOBA, rtol=1e-12)
    np.testing.assert_allclose(state.extra.diagonal, SOBA_A, rtol=1e-12)
    assert lucky == 2
