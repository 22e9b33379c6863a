"""The guard: its guarantee by enumeration and simulation, its probabilities and its cost."""

import itertools
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import jaxret as jr
from jaxret.learners.learner import Learner, change_rows
from jaxret.rules import projections
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback
from tests.problems import check_shown, fixed_delay

STEPS = {"tau": 0.2, "eta": 0.02}
ITEMS, QUERY = 4, np.float32([1.0, 0.5, 0.0])


def contrarian() -> Learner:
    """Make a learner that shows the tool ranked worst by the documents and never updates."""
    inner = jr.frozen()
    start = lambda theta, available=None: inner.init(-theta, available)  # noqa: E731
    return inner._replace(name="contrarian", init=start)


def make_world(static: float, other: float, queries: int, seed: int = 0) -> jr.Task:
    """Make rounds in which the best or worst tool by the documents is right at given rates."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(queries, ITEMS))
    lot, order = rng.random(queries), np.argsort(-rows, axis=1)
    place = np.where(lot < static, 0, np.where(lot < static + other, ITEMS - 1, 1))
    labels = order[np.arange(queries), place]
    return jr.Task.from_arrays(np.eye(ITEMS), rows, labels, name="two rivals")


def losses(run: jr.Run, static: jr.Run) -> np.ndarray:
    """Compute L_t of each seed; both runs stream the same queries in the same order."""
    ahead = static.trace.success - run.trace.success
    return np.cumsum(np.asarray(ahead, np.float64), axis=1)


def walked(budget, delta, epsilon, bits, coins):
    """Run the guard for T rounds in which the learner and static retrieval disagree.

    ``bits [T, 2]`` are the rewards of static retrieval's tool and of the learner's tool, and
    ``coins [T]`` tells whether the guard explores. Return L_t [T], and whether the learner was
    stopped.
    """
    guard = jr.guarded(contrarian(), budget, delta=delta, epsilon=epsilon)
    theta, query = jnp.eye(2), jnp.asarray([1.0, 0.0])

    def one(state, line):
        (y, other), coin = line
        static = coin | state.extra.stopped
        share = jnp.where(state.extra.stopped, 1.0, epsilon)
        choice = Choice(jnp.where(static, 0, 1), jnp.where(static, share, 1 - share))
        reward = jnp.where(static, y, other)
        return guard.update(state, query, choice, Feedback(reward)), y - reward

    state, lost = jax.lax.scan(one, guard.init(theta), (bits, coins))
    return jnp.cumsum(lost), state.extra.stopped


@cache
def enumerated(*setting):
    return jax.jit(jax.vmap(partial(walked, *setting), (None, 0)))


SEQUENCES = {
    "always the static tool": np.tile([1.0, 0.0], (13, 1)),
    "it begins well": np.r_[np.tile([0.0, 1.0], (3, 1)), np.tile([1.0, 0.0], (10, 1))],
    "shares, not bits": np.r_[np.tile([0.7, 0.1], (6, 1)), np.tile([1.0, 0.2], (7, 1))],
}


@pytest.mark.parametrize("bits", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize(("delta", "epsilon", "budget"), [(0.3, 0.3, 4.0), (0.5, 0.5, 2.0)])
def test_more_than_the_budget_is_lost_with_probability_delta_at_most(bits, delta, epsilon, budget):
    """Enumerate the sequences of coins, with probabilities, against adversarial rewards."""
    coins = np.array([*itertools.product([False, True], repeat=len(bits))])
    lost, stopped = jax.device_get(enumerated(budget, delta, epsilon)(bits, coins))
    heads = coins.sum(axis=1)
    probability = epsilon**heads * (1 - epsilon) ** (len(bits) - heads)
    np.testing.assert_allclose(probability.sum(), 1)
    violated = probability[lost.max(axis=1) > budget + 1e-6].sum()
    assert 0 < violated <= delta
    assert 0.2 < probability[stopped].sum() < 1


@cache
def compiled(fn):
    return quick_jit(fn)


def bound_after(guard, state, query, item, propensity, reward):
    choice = Choice(np.int32(item), np.float32(propensity))
    after = compiled(guard.update)(state, query, choice, Feedback(np.float32(reward)))
    return float(after.extra.bound) - float(state.extra.bound)


@pytest.fixture(scope="module")
def guards():
    return {x: jr.guarded(contrarian(), x, delta=0.05, epsilon=0.2) for x in (15.0, 60.0)}


@pytest.mark.parametrize("propensity", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("budget", [15.0, 60.0])
def test_with_binary_rewards_the_exponential_of_the_bound_is_a_martingale(
    guards, propensity, budget
):
    """Check E exp(lambda [y(b) - y(i)] - f) = 1, with lambda computed from the first bound."""
    guard, query = guards[budget], QUERY
    state = compiled(guard.init)(np.eye(3, dtype=np.float32))
    rate = np.log(1 / 0.05) / float(state.extra.bound)
    assert rate < -np.log(1 - 0.2)
    for static, other in itertools.product([0.0, 1.0], repeat=2):
        by_static = bound_after(guard, state, query, 0, propensity, static)
        by_other = bound_after(guard, state, query, 2, 0.1, other)
        grows = propensity * np.exp(-rate * by_static)
        grows += (1 - propensity) * np.exp(rate * (static - other - by_other))
        np.testing.assert_allclose(grows, 1, atol=1e-5)
    share = [bound_after(guard, state, query, item, propensity, 0.5) for item in (0, 2)]
    grows = propensity * np.exp(-rate * share[0]) + (1 - propensity) * np.exp(rate * 0.5)
    assert 0.9 < grows < 1  # strict for rewards between 0 and 1


def test_the_bound_starts_at_half_of_the_budget_and_agreement_costs_nothing(guards):
    guard = guards[60.0]
    state = compiled(guard.init)(np.eye(3, dtype=np.float32))
    np.testing.assert_allclose(state.extra.bound, 30, rtol=1e-6)
    for reward in (0.0, 1.0):
        assert bound_after(guard, state, QUERY, 0, 1.0, reward) == 0


@pytest.mark.parametrize("inner", [jr.greedy(**STEPS), jr.orag(**STEPS)], ids=lambda x: x.name)
def test_tools_are_shown_with_the_exact_probabilities(inner):
    epsilon = 0.3
    guard, rng = jr.guarded(inner, 30, epsilon=epsilon), np.random.default_rng(3)
    theta, query = rng.normal(size=(5, 4)), rng.normal(size=4)
    available = np.array([True, False, True, True, True])
    state = quick_jit(guard.init)(theta.astype(np.float32), available)
    learnt = theta[[3, 1, 0, 4, 2]]  # rows that differ from the documents
    state = state._replace(theta=learnt.astype(np.float32))
    z = np.where(available, learnt @ query / 0.2, -np.inf)
    own = softmax(z) if inner.name == "orag" else 1.0 * (z == z.max())
    static = np.where(available, theta @ query, -np.inf).argmax()
    exact = (1 - epsilon) * own + epsilon * (np.arange(5) == static)
    query = query.astype(np.float32)
    check_shown(guard, state, query, exact)
    stopped = state._replace(extra=state.extra._replace(stopped=np.asarray(True)))
    shown = compiled(guard.probabilities)(stopped, query)
    np.testing.assert_allclose(shown, np.arange(5) == static)


def test_a_harmful_learner_is_stopped_for_good():
    task = make_world(static=0.6, other=0.1, queries=600)
    guard = jr.guarded(contrarian(), budget=40)
    run, static = jr.simulate(guard, task, seeds=4), jr.simulate(jr.frozen(), task, seeds=4)
    assert run.form == "scan"
    assert np.asarray(run.states.extra.stopped).all()
    differ = run.trace.item != static.trace.item
    last = np.array([np.flatnonzero(line)[-1] for line in differ])
    assert (last < 400).all()
    assert (run.trace.propensity[:, -1] == 1).all()
    assert (np.asarray(run.states.extra.bound) > 40).all()
    assert losses(run, static).max() <= 40
    queries, saved = task.queries[:9], run.embeddings(0)
    for scores in (guard.scores(run.state(0), jnp.asarray(queries)), saved.scores(queries)):
        np.testing.assert_allclose(scores, queries, rtol=1e-6)  # those of the documents
    assert saved.facts["learner"].endswith("+guard: static retrieval")
    # Recomputes the bound of the first seed from its trace.
    rate = np.log(1 / 0.05) / 20
    price = -np.log((1 - 0.8 * np.exp(rate)) / 0.2) / rate
    shown = run.trace.item[0] != static.trace.item[0]
    coin = ~shown & (run.trace.propensity[0] < 0.5)
    by_hand = 20 + run.trace.reward[0] @ (price * coin - shown)
    np.testing.assert_allclose(run.states.extra.bound[0], by_hand, rtol=1e-4)


def test_a_stopped_learner_is_not_restarted_by_late_feedback(guards):
    """Late feedback on a success of the learner moves the bound back below the budget."""
    guard = guards[60.0]
    state = compiled(guard.init)(np.eye(3, dtype=np.float32))
    gone = state.extra._replace(bound=np.float32(60.5), stopped=np.asarray(True))
    late, success = Choice(np.int32(2), np.float32(0.8)), Feedback(np.float32(1))
    after = compiled(guard.update)(state._replace(extra=gone), QUERY, late, success)
    assert after.extra.bound == 59.5
    assert after.extra.stopped
    assert compiled(guard.probabilities)(after, QUERY)[0] == 1


def test_a_helpful_learner_stays_and_loses_a_share_of_its_gain():
    task = make_world(static=0.1, other=0.6, queries=600)
    free, run, static = (
        jr.simulate(learner, task, seeds=4)
        for learner in (contrarian(), jr.guarded(contrarian(), budget=40), jr.frozen())
    )
    assert not np.asarray(run.states.extra.stopped).any()
    earned, kept = (one.accuracy.mean - static.accuracy.mean for one in (free, run))
    np.testing.assert_allclose(kept / earned, 0.8, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("static", "other", "budget", "delta", "epsilon", "rounds"),
    [
        (1.0, 0.0, 4.0, 0.3, 0.3, 60),  # the smallest budget, with certain losses
        (0.5, 0.0, 5.0, 0.3, 0.3, 200),
        (0.3, 0.2, 20.0, 0.1, 0.2, 600),
        (0.2, 0.0, 30.0, 0.05, 0.2, 600),
    ],
)
def test_in_a_thousand_runs_the_budget_is_exceeded_with_probability_delta_at_most(
    optimised, static, other, budget, delta, epsilon, rounds
):
    task = make_world(static, other, rounds)
    guard = jr.guarded(contrarian(), budget, delta=delta, epsilon=epsilon)

    def exceeds(learner, seeds):
        both = (jr.simulate(one, task, seeds=seeds) for one in (learner, jr.frozen()))
        return losses(*both).max(axis=1) > budget

    assert exceeds(guard, seeds=1000).mean() <= delta
    assert exceeds(contrarian(), seeds=3).all()


@pytest.mark.slow
def test_delayed_feedback_may_exceed_the_budget_by_the_delay(optimised):
    task, late = make_world(static=1.0, other=0.0, queries=120), 15
    environment = jr.Environment(delay=fixed_delay(late))
    guard = jr.guarded(contrarian(), 5.0, delta=0.3, epsilon=0.3)
    run = jr.simulate(guard, task, seeds=1000, environment=environment)
    most = losses(run, jr.simulate(jr.frozen(), task, seeds=1000)).max(axis=1)
    assert (most > 5 + late).mean() <= 0.3
    assert (most > 5).mean() > 0.3  # shows that the delay matters


def test_changed_rows_change_for_static_retrieval_too():
    guard = jr.guarded(jr.greedy(projection=projections.none()), 40)
    state = change_rows(guard, guard.init(jnp.eye(3)), lambda rows: 2 * rows)
    np.testing.assert_array_equal(state.theta, 2 * np.eye(3))
    np.testing.assert_array_equal(state.extra.static, 2 * np.eye(3))
