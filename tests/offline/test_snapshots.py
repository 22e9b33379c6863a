"""Replaying a log restores the state and the probabilities of the learner that served."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.logs import take
from jaxret.offline.snapshots import with_probabilities
from jaxret.types import Choice, Feedback
from tests.problems import make_task

SETTINGS = {"tau": 0.1, "eta": 0.02}
TASK = make_task()
SERVED = {
    "mapped": jr.with_exploration(jr.mapped(**SETTINGS), 0.3),
    "drawing": jr.orag(**SETTINGS),
}


@pytest.fixture(scope="module", params=SERVED)
def served(request, tmp_path_factory):
    """Return a learner, its run and its log of 300 rounds, longer than one batch."""
    folder = tmp_path_factory.mktemp("logs")
    learner = SERVED[request.param]
    run = jr.simulate(learner, TASK, exposures=5, log=folder)
    return learner, run, jr.load_log(folder / "seed_0.jsonl", TASK)


def by_hand(learner, log):
    """Compute the probabilities before each round and the last state, round by round."""
    state, probabilities = jax.jit(learner.init)(TASK.theta), []

    @jax.jit
    def step(state, query, choice, feedback):
        chance = learner.probabilities(state, query)
        return learner.update(state, query, choice, feedback), chance

    for t in range(log.rounds):
        choice = Choice(np.int32(log.item[t]), np.float32(log.propensity[t]))
        state, chance = step(state, log.query[t], choice, Feedback(np.float32(log.reward[t])))
        probabilities.append(np.asarray(chance))
    return np.stack(probabilities), state


def test_a_warm_start_restores_the_state_of_the_serving_learner(served):
    learner, run, log = served
    warm = jr.warm_start(log, learner)
    assert warm.learner is learner
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-5), warm.state, run.state(0))
    early = jr.warm_start(take(log, slice(0, 170)), learner)
    late = jr.warm_start(take(log, slice(170, None)), early)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), late.state, warm.state)


def test_probabilities_are_those_of_the_serving_learner(served):
    learner, _, log = served
    known, (probabilities, _) = with_probabilities(log, learner), by_hand(learner, log)
    np.testing.assert_allclose(known.probabilities, probabilities, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(known.by_position, log.by_position, rtol=2e-3)
    rounds = np.arange(300)
    np.testing.assert_array_equal(known.by_position[:, 0], known.probabilities[rounds, log.item])


def test_unanswered_rounds_are_counted_and_change_nothing_else(served):
    learner, _, log = served
    silent = np.arange(300) % 3 == 0
    warm = jr.warm_start(log._replace(reward=np.where(silent, np.nan, log.reward)), learner)
    heard = jr.warm_start(take(log, ~silent), learner)
    np.testing.assert_allclose(warm.state.theta, heard.state.theta, atol=1e-6)
    assert (int(warm.state.t), int(heard.state.t)) == (300, 200)


@pytest.mark.parametrize("served", ["drawing"], indirect=True)
def test_logs_of_another_learner_or_without_what_it_needs_are_refused(served):
    learner, _, log = served
    turned = jr.Snapshot(learner, jax.jit(learner.init)(-TASK.theta))
    with pytest.raises(ValueError, match=r"has the propensity .*'orag' would have had"):
        with_probabilities(log, jr.orag(tau=0.2))
    with pytest.raises(ValueError, match="did not write this log, or began from another state"):
        with_probabilities(log, turned)
    with pytest.raises(ValueError, match="'full_information' is an oracle: a log has no labels"):
        jr.warm_start(log, jr.full_information())
    unknown = log._replace(propensity=np.full(300, np.nan))
    with pytest.raises(ValueError, match="'orag' came to rows that are not numbers: it needs prop"):
        jr.warm_start(unknown, jr.orag())
    jr.warm_start(unknown, jr.greedy())  # does not divide by the propensity
    late = log._replace(version=np.maximum(np.arange(300) - 2, 0))
    with pytest.raises(ValueError, match="did not learn from each round before the next"):
        with_probabilities(late, learner)
    both = np.stack([log.item, (log.item + 1) % 12], axis=1)
    slates = log._replace(slate=both, by_position=np.tile(log.by_position, (1, 2)))
    with pytest.raises(ValueError, match="has slates of 2: probabilities are known for one"):
        with_probabilities(slates, learner)


@pytest.mark.parametrize("served", ["drawing"], indirect=True)
def test_a_learner_that_served_without_learning_is_not_updated(served):
    learner, _, log = served
    still = log._replace(version=np.full(300, 7))
    state = jax.jit(learner.init)(TASK.theta)
    probabilities_of = jax.jit(jax.vmap(learner.probabilities, (None, 0)))
    probabilities = np.asarray(probabilities_of(state, log.query[:20]))
    first = take(still, slice(0, 20))
    own = probabilities[np.arange(20), first.item]
    log = first._replace(by_position=own[:, None])
    known = with_probabilities(log, jr.Snapshot(learner, state))
    np.testing.assert_allclose(known.probabilities, probabilities, rtol=1e-5)


@pytest.mark.parametrize("served", ["drawing"], indirect=True)
def test_lists_and_jax_arrays_and_other_ranges_of_rewards_teach_the_same(served):
    learner, _, log = served
    want = jr.warm_start(log, learner).state.theta
    for convert in (np.ndarray.tolist, jnp.asarray):
        found = jr.warm_start(jax.tree.map(convert, log), learner)
        np.testing.assert_allclose(found.state.theta, want, atol=1e-6)
    costs = log._replace(reward=log.reward - 1)
    found = jr.warm_start(costs, learner, scale=(-1, 0))
    np.testing.assert_allclose(found.state.theta, want, atol=1e-6)
    empty = jr.warm_start(take(log, slice(0, 0)), learner)
    assert int(empty.state.t) == 0
    np.testing.assert_allclose(empty.state.theta, TASK.theta, atol=1e-6)


@pytest.mark.parametrize("served", ["drawing"], indirect=True)
def test_logs_that_would_teach_something_else_are_refused(served):
    learner, _, log = served
    small = jr.Snapshot(learner, jax.jit(learner.init)(TASK.theta[:3]))
    cases = {
        r"reward of round \d+ must be in \[0, 1\], got 5": (
            log._replace(reward=5 * log.reward),
            learner,
        ),
        "propensity of round 0 must be a probability": (
            log._replace(propensity=100 * log.propensity),
            learner,
        ),
        "which is not on its slate": (log._replace(item=(log.item + 1) % 12), learner),
        "the snapshot of 'orag' has 3 tools and the log 12": (log, small),
        "is needed, got str": (log, "greedy"),
        "log must be a Log": (log.reward, learner),
    }
    for message, (wrong, rule) in cases.items():
        with pytest.raises(ValueError, match=message):
            jr.warm_start(wrong, rule)
    with pytest.raises(ValueError, match="the rounds of the log must be >= 1, got 0"):
        with_probabilities(take(log, slice(0, 0)), learner)
