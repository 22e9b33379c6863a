"""A guard: its guarantee by enumeration and by simulation, its probabilities, its costs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners.learner import Learner, change_rows
from jaxret.rules import projections
from jaxret.testing import check_learner
from jaxret.types import Choice, Feedback
from tests.problems import fixed_delay

STEPS = {"tau": 0.2, "eta": 0.02}
ITEMS = 4


def contrarian() -> Learner:
    """Shows the worst tool of all, by the documents, and learns nothing."""
    inner = jr.frozen()
    start = lambda theta, available=None: inner.init(-theta, available)  # noqa: E731
    return inner._replace(name="contrarian", init=start)


def make_world(static: float, other: float, queries: int, seed: int = 0) -> jr.Task:
    """The best tool by the documents is right in a share of the rounds, the worst in another."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(queries, ITEMS))
    lot, order = rng.random(queries), np.argsort(-rows, axis=1)
    place = np.where(lot < static, 0, np.where(lot < static + other, ITEMS - 1, 1))
    labels = order[np.arange(queries), place]
    return jr.Task.from_arrays(np.eye(ITEMS), rows, labels, name="two rivals")


def losses(run: jr.Run, static: jr.Run) -> np.ndarray:
    """L_t of each seed: both met the same queries in the same order."""
    ahead = static.trace.success - run.trace.success
    return np.cumsum(np.asarray(ahead, np.float64), axis=1)


@pytest.mark.parametrize(
    "learner",
    [
        jr.orag(**STEPS),
        pytest.param(jr.greedy(**STEPS), marks=pytest.mark.slow),
        pytest.param(jr.mapped_replayed(), marks=pytest.mark.slow),
        pytest.param(jr.full_information(**STEPS), marks=pytest.mark.slow),
        pytest.param(
            jr.mixture([jr.grid(jr.frozen, tau=[0.1]), jr.grid(jr.greedy, tau=[0.1], eta=0.01)]),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda learner: learner.name,
)
def test_guarded_learners_keep_the_common_promises(learner):
    check_learner(jr.guarded(learner, budget=20))


def walked(budget, delta, epsilon, bits, coins):
    """The guard alone, through T rounds in which the two differ: L_t for given coins [T].

    ``bits [T, 2]`` are of static retrieval's tool, and of the learner's.
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


SEQUENCES = {
    "always the static tool": np.tile([1.0, 0.0], (13, 1)),
    "it begins well": np.r_[np.tile([0.0, 1.0], (3, 1)), np.tile([1.0, 0.0], (10, 1))],
    "shares, not bits": np.r_[np.tile([0.7, 0.1], (6, 1)), np.tile([1.0, 0.2], (7, 1))],
}


@pytest.mark.parametrize("bits", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize(("delta", "epsilon", "budget"), [(0.3, 0.3, 4.0), (0.5, 0.5, 2.0)])
def test_over_all_coins_more_than_the_budget_is_lost_with_probability_delta_at_most(
    bits, delta, epsilon, budget
):
    """An adversary's bits, every sequence of coins, each with its probability."""
    coins = np.array([*itertools.product([False, True], repeat=len(bits))])
    each = jax.jit(jax.vmap(lambda c: walked(budget, delta, epsilon, jnp.asarray(bits), c)))
    lost, stopped = jax.tree.map(np.asarray, each(jnp.asarray(coins)))
    heads = coins.sum(axis=1)
    probability = epsilon**heads * (1 - epsilon) ** (len(bits) - heads)
    np.testing.assert_allclose(probability.sum(), 1)
    violated = probability[lost.max(axis=1) > budget + 1e-6].sum()
    assert 0 < violated <= delta
    assert 0.2 < probability[stopped].sum() < 1


def bound_after(guard, state, query, item, propensity, reward):
    choice = Choice(jnp.asarray(item), jnp.asarray(propensity, jnp.float32))
    after = guard.update(state, query, choice, Feedback(jnp.asarray(reward, jnp.float32)))
    return float(after.extra.bound) - float(state.extra.bound)


@pytest.mark.parametrize("propensity", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("budget", [15.0, 60.0])
def test_the_bounds_exponential_is_a_martingale_where_bits_are_bits(propensity, budget):
    """E exp(lambda [y(b) - y(i)] - f) = 1, with lambda read off the bound before any bit."""
    guard = jr.guarded(contrarian(), budget, delta=0.05, epsilon=0.2)
    state, query = guard.init(jnp.eye(3)), jnp.asarray([1.0, 0.5, 0.0])
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
    assert 0.9 < grows < 1  # a share of a success says less than a coin for a whole one


def test_half_of_the_budget_is_doubt_and_agreement_costs_nothing():
    guard = jr.guarded(contrarian(), 80.0)
    state, query = guard.init(jnp.eye(3)), jnp.asarray([1.0, 0.5, 0.0])
    np.testing.assert_allclose(state.extra.bound, 40, rtol=1e-6)
    for reward in (0.0, 1.0):
        assert bound_after(guard, state, query, 0, 1.0, reward) == 0


@pytest.mark.parametrize("inner", [jr.greedy(**STEPS), jr.orag(**STEPS)], ids=lambda x: x.name)
def test_tools_are_shown_as_often_as_the_exact_propensities_say(inner):
    epsilon, draws = 0.3, 20_000
    guard, rng = jr.guarded(inner, 30, epsilon=epsilon), np.random.default_rng(3)
    theta, query = rng.normal(size=(5, 4)), rng.normal(size=4)
    here = jnp.asarray([True, False, True, True, True])
    state = guard.init(jnp.asarray(theta, jnp.float32), here)
    learnt = theta[[3, 1, 0, 4, 2]]  # something else was learnt
    state = state._replace(theta=jnp.asarray(learnt, jnp.float32))
    z = np.where(here, learnt @ query / 0.2, -np.inf)
    own = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    if inner.name == "greedy":
        own = 1.0 * (z == z.max())
    static = np.where(here, theta @ query, -np.inf).argmax()
    exact = (1 - epsilon) * own + epsilon * (np.arange(5) == static)
    query = jnp.asarray(query, jnp.float32)
    np.testing.assert_allclose(guard.probabilities(state, query), exact, atol=1e-6)
    keys = jax.random.split(jax.random.key(7), draws)
    slates = jax.jit(jax.vmap(lambda key: guard.act(state, query, key)))(keys)
    items = np.asarray(slates.items)[:, 0]
    np.testing.assert_allclose(slates.propensity[:, 0], exact[items], rtol=1e-5)
    often = np.bincount(items, minlength=5) / draws
    assert (np.abs(often - exact) <= 4.5 * np.sqrt(exact * (1 - exact) / draws) + 1e-9).all()
    stopped = state._replace(extra=state.extra._replace(stopped=jnp.asarray(True)))
    np.testing.assert_allclose(guard.probabilities(stopped, query), np.arange(5) == static)


def test_a_learner_that_harms_must_go_and_static_retrieval_serves_for_ever():
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
    state = run.state(0)
    queries = jnp.asarray(task.queries[:9])
    np.testing.assert_allclose(guard.scores(state, queries), queries, rtol=1e-6)  # the documents
    # None of the bound's steps was missed: by hand, from the trace of the first seed.
    rate = np.log(1 / 0.05) / 20
    price = -np.log((1 - 0.8 * np.exp(rate)) / 0.2) / rate
    shown = run.trace.item[0] != static.trace.item[0]
    coin = ~shown & (run.trace.propensity[0] < 0.5)
    by_hand = 20 + run.trace.reward[0] @ (price * coin - shown)
    np.testing.assert_allclose(run.states.extra.bound[0], by_hand, rtol=1e-4)


def test_a_learner_that_had_to_go_stays_away_whatever_late_answers_say():
    """A success of the learner's own that was under way brings the bound below the budget again."""
    guard = jr.guarded(contrarian(), 40)
    state, query = guard.init(jnp.eye(3)), jnp.asarray([1.0, 0.5, 0.0])
    gone = state.extra._replace(bound=jnp.asarray(40.5), stopped=jnp.asarray(True))
    late = Choice(jnp.asarray(2), jnp.asarray(0.8))
    after = guard.update(state._replace(extra=gone), query, late, Feedback(jnp.asarray(1.0)))
    assert after.extra.bound == 39.5
    assert after.extra.stopped
    assert guard.probabilities(after, query)[0] == 1


def test_a_learner_that_helps_stays_and_costs_a_share_of_what_it_earns():
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
        (1.0, 0.0, 4.0, 0.3, 0.3, 60),  # the tightest that it takes, where nothing is random
        (0.5, 0.0, 5.0, 0.3, 0.3, 200),
        (0.3, 0.2, 20.0, 0.1, 0.2, 600),
        (0.2, 0.0, 30.0, 0.05, 0.2, 600),
    ],
)
def test_in_a_thousand_runs_more_than_the_budget_is_lost_at_most_as_often_as_said(
    optimised, static, other, budget, delta, epsilon, rounds
):
    task, seeds = make_world(static, other, rounds), 1000
    guard = jr.guarded(contrarian(), budget, delta=delta, epsilon=epsilon)
    run, alone = jr.simulate(guard, task, seeds=seeds), jr.simulate(jr.frozen(), task, seeds=seeds)
    violated = (losses(run, alone).max(axis=1) > budget).mean()
    assert violated <= delta
    bare = jr.simulate(contrarian(), task, seeds=3)
    assert (losses(bare, jr.simulate(jr.frozen(), task, seeds=3)).max(axis=1) > budget).all()


@pytest.mark.slow
def test_of_answers_that_come_late_those_under_way_may_be_lost_besides(optimised):
    task, late = make_world(static=1.0, other=0.0, queries=120), 15
    environment = jr.Environment(delay=fixed_delay(late))
    guard = jr.guarded(contrarian(), 5.0, delta=0.3, epsilon=0.3)
    run = jr.simulate(guard, task, seeds=1000, environment=environment)
    most = losses(run, jr.simulate(jr.frozen(), task, seeds=1000)).max(axis=1)
    assert (most > 5 + late).mean() <= 0.3
    assert (most > 5).mean() > 0.3  # which is why the docstring says so


def test_what_is_rewritten_is_rewritten_for_static_retrieval_too():
    guard = jr.guarded(jr.greedy(projection=projections.none()), 40)
    state = change_rows(guard, guard.init(jnp.eye(3)), lambda rows: 2 * rows)
    np.testing.assert_array_equal(state.theta, 2 * np.eye(3))
    np.testing.assert_array_equal(state.extra.static, 2 * np.eye(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: jr.guarded(jr.greedy(), 14.0),
            "budget must be >= 14.9, the doubt that delta=0.05",
        ),
        (lambda: jr.guarded(jr.greedy(), 50, delta=1.0), r"delta must be in \(0, 1\), got 1.0"),
        (lambda: jr.guarded(jr.greedy(), 50, epsilon=0.0), r"epsilon must be in \(0, 1\), got 0.0"),
        (
            lambda: jr.guarded(jr.greedy(k=3), 50),
            "learner 'greedy' does not give the probability of each item: a guard needs one item",
        ),
    ],
)
def test_what_cannot_be_guarded_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
