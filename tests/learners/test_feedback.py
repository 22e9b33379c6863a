"""Feedback: rewards in [0, 1], missing rewards, rewards per item, and labels for oracles."""

from functools import lru_cache, partial
from itertools import combinations
from operator import itemgetter

import jax
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import bandits, presets, registry
from jaxret.learners.learner import query_for
from jaxret.learners.memory import with_memory
from jaxret.learners.minibatch import adamw
from jaxret.learners.rank_one import coefficients, rank_one
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_exploration, with_preconditioner, with_query_map
from jaxret.rules import estimators, policies, projections
from jaxret.runtime.memo import factories
from jaxret.simulation.blocked import rank_one as block
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.simulation.scan import learn, scan_rounds, show
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback
from tests.problems import same, slope

LOGITS = np.array([0.3, -np.inf, 1.2, 0.0, -0.7])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
AVAILABLE = np.flatnonzero(P)
LIKELIHOOD, WEIGHTED = estimators.bandit_likelihood(), estimators.importance_weighted()


@lru_cache
def compiled_coefficients(estimator):
    return quick_jit(lambda *args: coefficients(estimator, *args, None))


def c_of(estimator, items, propensity, reward):
    """Compute coefficients in float64 for a single item or a slate."""
    choice = Choice(np.asarray(items), np.asarray(propensity, float))
    with jax.enable_x64(True):
        run = compiled_coefficients(estimator)
        return np.asarray(run(LOGITS, choice, Feedback(np.asarray(reward, float))))


def expected_loss(logits, item, mean):
    """Compute the mean of -log P(y | item) over bits y with the given mean."""
    p = np.exp(logits) / np.exp(logits).sum()
    return -mean * np.log(p[item]) - (1 - mean) * np.log(1 - p[item])


@pytest.mark.parametrize("item", [0, 2, 4])
def test_a_soft_reward_moves_by_the_gradient_of_the_expected_loss(item):
    away = P - (np.arange(5) == item)
    failure = -away * P[item] / (1 - P[item])
    for reward in (0.0, 0.2, 0.5, 0.85, 1.0):
        got = c_of(LIKELIHOOD, item, 0.9, reward)
        expected = slope(partial(expected_loss, item=item, mean=reward), LOGITS)
        np.testing.assert_allclose(got, expected, atol=1e-8)
        np.testing.assert_allclose(got, reward * away + (1 - reward) * failure, rtol=1e-12)


REWARDS = np.array([0.3, 0.7, 1.0, 0.0, 0.5])  # reward of each item, whatever the slate


@pytest.mark.parametrize(
    "probabilities",
    [
        dict.fromkeys(combinations(AVAILABLE, 2), 1 / 6),
        dict.fromkeys(combinations(AVAILABLE, 3), 1 / 4),
        {(0, 2): 0.5, (0, 3): 0.2, (2, 4): 0.3},
    ],
    ids=["uniform pairs", "uniform triples", "uneven pairs"],
)
def test_with_a_reward_for_each_item_of_a_slate_equation_4_is_unbiased(probabilities):
    """Weight items by the probability that the slate contains them."""
    inclusion, mean = np.zeros(5), np.zeros(5)
    for slate, probability in probabilities.items():
        inclusion[list(slate)] += probability
    for slate, probability in probabilities.items():
        items = list(slate)
        mean += probability * c_of(WEIGHTED, items, inclusion[items], REWARDS[items])
    np.testing.assert_allclose(mean, P - REWARDS * (P > 0), atol=1e-12)


def test_the_likelihood_of_a_slate_is_the_gradient_of_the_summed_loss():
    items = [0, 4, 2]
    got = c_of(LIKELIHOOD, items, np.ones(3), REWARDS[items])
    expected = slope(lambda z: sum(expected_loss(z, i, REWARDS[i]) for i in items), LOGITS)
    np.testing.assert_allclose(got, expected, atol=1e-8)


def test_a_slate_of_one_is_one_item():
    for make in factories(estimators).values():
        settings = {"noise_rate": 0.1} if make is estimators.debiased else {}
        estimator = make(**settings)
        if estimator.bandit:
            alone = c_of(estimator, 2, 0.4, 0.8)
            np.testing.assert_allclose(c_of(estimator, [2], [0.4], [0.8]), alone, atol=1e-12)


STEPS = {"tau": 0.2, "eta": 0.02}
GREEDY = presets.greedy(**STEPS)
BATCHES = adamw(tau=0.5, eta=0.01, batch=3)
WRAPPED = [
    with_exploration(GREEDY, 0.2),
    with_exploration(presets.mapped_replayed(), 0.2),
    with_preconditioner(with_query_map(GREEDY), presets.preconditioners.by_row()),
    with_experience_replay(with_query_map(presets.orag(**STEPS)), per_round=2, capacity=3),
    with_query_map(presets.full_information(**STEPS)),
    BATCHES,
]
PRESETS = {name: make() for name, make in registry.factories().items()}
# `check_learner` covers missing feedback, in quick contract tests of these learners or their twins.
CHECKED = {*bandits.__all__, "orag", "mixture", "paper_adamw"}
# These have the parts of `greedy`, `mapped` or `centred_replayed`, but for the estimator.
CHECKED |= {"chosen_only", "clipped", "debiased", "implicit_exploration", "full_information"}
CHECKED |= {"mapped_full_information", "centred", "greedy_replayed", "mapped_replayed"}
UNCHECKED = [rule for name, rule in PRESETS.items() if name not in CHECKED] + [BATCHES]
THETA = np.random.default_rng(5).normal(size=(5, 4)).astype(np.float32)


def make_rounds(n, seed=0):
    """Make queries, choices and feedback of n rounds; every second reward is 1."""
    t, rng = np.arange(n), np.random.default_rng(seed)
    return (
        rng.normal(size=(n, 4)).astype(np.float32),
        Choice(t % 5, np.full(n, 0.5, np.float32)),
        np.float32(t % 2),
        np.stack([t % 3, np.full(n, -1)], axis=1),
    )


def learn_rounds(rule, rounds, observed):
    """Return the states [n + 1] before the first round and after each round."""

    @quick_jit
    def run(rounds, observed):
        def one(state, line):
            (query, choice, reward, labels), seen = line
            feedback = Feedback(reward, seen, labels if rule.facts.oracle else None)
            state = rule.update(state, query_for(rule, query), choice, feedback)
            return state, state

        first = rule.init(THETA, np.arange(5) != 3)
        return first, jax.lax.scan(one, first, (rounds, observed))[1]

    first, rest = jax.device_get(run(rounds, observed))
    return [first, *(jax.tree.map(itemgetter(t), rest) for t in range(len(observed)))]


@pytest.mark.parametrize("rule", UNCHECKED, ids=lambda rule: rule.name)
def test_a_round_without_feedback_changes_only_the_count(rule):
    states = learn_rounds(rule, make_rounds(7), np.arange(7) < 5)
    assert states[7].t == states[5].t + 2
    same(states[7]._replace(t=states[5].t), states[5])


def test_a_round_without_feedback_does_not_fill_a_batch():
    """Use two batches of three, with unobserved rounds before, within and after them."""
    observed = np.isin(np.arange(16), [3, 4, 8, 9, 10, 12])
    sparse = jax.tree.map(lambda x: np.zeros((16, *x.shape[1:]), x.dtype), make_rounds(6))
    for whole, part in zip(jax.tree.leaves(sparse), jax.tree.leaves(make_rounds(6)), strict=True):
        whole[observed] = part
    state = learn_rounds(BATCHES, sparse, observed)[-1]
    plain = learn_rounds(BATCHES, make_rounds(6), np.ones(6, bool))[-1]
    assert (state.t, plain.t, plain.extra.count) == (16, 6, 6)
    same(state._replace(t=plain.t), plain)
    assert np.abs(plain.theta - THETA).max() > 1e-3


def trace_rounds(simulate, rule, problem):
    """Trace a simulation without running it."""
    catalogue, stream = problem(times=1)
    state = jax.eval_shape(rule.init, *catalogue)
    jax.eval_shape(partial(simulate, rule), state, Environment(), stream, jax.random.key(0))


def recording(rule):
    """Return a learner, and a list that receives the labels at each tracing of its update."""
    given = []

    def update(state, query, choice, feedback):
        given.append(feedback.labels)
        return rule.update(state, query, choice, feedback)

    return rule._replace(update=update), given


TEACHER = presets.full_information(**STEPS)
WRAPPED_ORACLES = [
    TEACHER,
    with_query_map(TEACHER),
    with_preconditioner(TEACHER, presets.preconditioners.by_row()),
    with_exploration(TEACHER),
    with_memory(TEACHER),
    with_exploration(
        adamw(tau=1.0, eta=0.1, estimator=estimators.full_information(), policy=policies.greedy())
    ),
]


@pytest.mark.parametrize(
    "rule", [presets.orag(), *WRAPPED, *WRAPPED_ORACLES], ids=lambda rule: rule.name
)
def test_only_oracles_are_given_labels(problem, rule):
    rule, given = recording(rule)
    trace_rounds(scan_rounds, rule, problem)
    scanned, (catalogue, stream) = len(given), problem(times=1)
    state = jax.eval_shape(rule.init, *catalogue)
    arguments = state, Environment(), stream, np.int32(0), jax.random.key(0)
    slate = jax.eval_shape(partial(show, rule), *arguments)
    jax.eval_shape(partial(learn, rule, position=0), *arguments, slate)
    assert len(given) > scanned > 0
    assert [labels is not None for labels in given] == [rule.facts.oracle] * len(given)


def test_wrappers_of_oracles_are_oracles():
    names = [rule.name for rule in [*PRESETS.values(), *WRAPPED] if rule.facts.oracle]
    oracles = ["full_information", "mapped_full_information", "oracle"]
    assert names == [*oracles, "full_information+linear"]
    assert all(rule.facts.oracle for rule in WRAPPED_ORACLES)


def test_only_estimators_with_bandit_false_are_given_the_target(problem):
    seen = []

    def recorded(obs):
        seen.append(obs.target)
        return estimators.importance_weighted().coefficients(obs)

    for bandit in (True, False):
        estimator = estimators.Estimator("recorded", recorded, unbiased=False, bandit=bandit)
        rule = rank_one("a", estimator=estimator, policy=policies.softmax(), **STEPS)
        for simulate in (scan_rounds, simulate_blocked):
            seen.clear()
            trace_rounds(simulate, rule, problem)
            assert seen
            assert [target is None for target in seen] == [bandit] * len(seen)
        seen.clear()  # now with labels in the feedback
        choice = Choice(np.int32(0), np.float32(0.5))
        feedback = Feedback(np.float32(1), labels=np.array([2]))
        jax.eval_shape(partial(coefficients, estimator), np.zeros(3), choice, feedback, None)
        assert [target is None for target in seen] == [bandit] * len(seen)


@pytest.mark.parametrize("rule", [GREEDY, with_exploration(GREEDY), presets.full_information()])
def test_the_blocked_form_gives_labels_to_oracles_only(problem, monkeypatch, rule):
    given = []

    def recorded(estimator, z, choice, feedback, axis):
        given.append(feedback.labels)
        return coefficients(estimator, z, choice, feedback, axis)

    monkeypatch.setattr(block, "coefficients", recorded)
    trace_rounds(partial(simulate_blocked, block=16), rule, problem)
    assert given
    assert [labels is not None for labels in given] == [rule.facts.oracle] * len(given)


def test_a_learner_without_a_softmax_runs_and_its_loss_is_nan(problem):
    catalogue, stream = problem(times=1)
    rule = presets.greedy(**STEPS, projection=projections.none())

    def run(learner):
        state = learner.init(*catalogue)
        return scan_rounds(learner, state, Environment(), stream, jax.random.key(0))[1]

    plain, mute = quick_jit(lambda: (run(rule), run(rule._replace(logits=None))))()
    np.testing.assert_array_equal(mute.item, plain.item)
    assert np.isnan(mute.loss).all()
    assert np.isfinite(plain.loss).all()
