"""What comes back for a choice: soft rewards, no answer, a reward for each item, and no labels."""

from functools import lru_cache, partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import presets, registry
from jaxret.learners.adamw import adamw
from jaxret.learners.rank_one import coefficients, rank_one
from jaxret.learners.replay import with_experience_replay
from jaxret.learners.wrappers import with_exploration, with_preconditioner, with_query_map
from jaxret.rules import estimators, policies, projections
from jaxret.simulation.blocked import rank_one as block
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.simulation.scan import learn, scan_rounds, show
from jaxret.types import Choice, Feedback

LOGITS = np.array([0.3, -np.inf, 1.2, 0.0, -0.7])
P = np.exp(LOGITS) / np.exp(LOGITS).sum()
HERE = np.flatnonzero(P)


def c_of(estimator, items, propensity, reward):
    """Its coefficients in float64, of one item or of a slate."""
    with jax.enable_x64(True):
        choice = Choice(item=jnp.asarray(items), propensity=jnp.asarray(propensity, float))
        feedback = Feedback(jnp.asarray(reward, float))
        return np.asarray(coefficients(estimator, jnp.asarray(LOGITS), choice, feedback, None))


def finite_differences(loss, step=1e-6):
    """Of a function of the logits of the items that are there; 0 for the others."""
    slope = np.zeros(len(LOGITS))
    for i in HERE:
        up, down = LOGITS.copy(), LOGITS.copy()
        up[i], down[i] = up[i] + step, down[i] - step
        slope[i] = (loss(up) - loss(down)) / (2 * step)
    return slope


def expected_loss(logits, item, mean):
    """Of -log P(y | item) over bits y with this mean."""
    p = np.exp(logits) / np.exp(logits).sum()
    return -mean * np.log(p[item]) - (1 - mean) * np.log(1 - p[item])


@pytest.mark.parametrize("reward", [0.0, 0.2, 0.5, 0.85, 1.0])
@pytest.mark.parametrize("item", [0, 2, 4])
def test_a_soft_reward_moves_by_the_gradient_of_the_expected_loss(item, reward):
    got = c_of(estimators.bandit_likelihood(), item, 0.9, reward)
    expected = finite_differences(partial(expected_loss, item=item, mean=reward))
    np.testing.assert_allclose(got, expected, atol=1e-8)


@pytest.mark.parametrize("item", [0, 2, 4])
def test_at_zero_and_one_it_is_the_coefficient_of_the_bit(item):
    away = P - (np.arange(5) == item)
    likelihood = estimators.bandit_likelihood()
    np.testing.assert_allclose(c_of(likelihood, item, 0.9, 1.0), away, rtol=1e-12)
    failure = -away * P[item] / (1 - P[item])
    np.testing.assert_allclose(c_of(likelihood, item, 0.9, 0.0), failure, rtol=1e-12)


REWARDS = np.array([0.3, 0.7, 1.0, 0.0, 0.5])  # of each item, whoever is shown with it


@pytest.mark.parametrize("k", [2, 3])
def test_a_slate_with_a_reward_an_item_keeps_equation_4_unbiased(k):
    """Slates of k are drawn evenly: each stands in one with the chance k / 4."""
    slates = list(combinations(HERE, k))
    mean = sum(
        c_of(estimators.importance_weighted(), slate, np.full(k, k / 4), REWARDS[list(slate)])
        for slate in slates
    ) / len(slates)
    np.testing.assert_allclose(mean, P - REWARDS * (P > 0), atol=1e-12)


def test_uneven_slates_are_weighted_by_the_chance_of_standing_in_them():
    slates, probabilities = [(0, 2), (0, 3), (2, 4)], [0.5, 0.2, 0.3]
    inclusion = np.zeros(5)
    for slate, chance in zip(slates, probabilities, strict=True):
        inclusion[list(slate)] += chance
    mean = np.zeros(5)
    for slate, chance in zip(slates, probabilities, strict=True):
        items = list(slate)
        c = c_of(estimators.importance_weighted(), items, inclusion[items], REWARDS[items])
        mean += chance * c
    np.testing.assert_allclose(mean, P - REWARDS * (P > 0), atol=1e-12)


def test_the_likelihood_of_a_slate_is_the_gradient_of_the_summed_loss():
    items = [0, 4, 2]
    got = c_of(estimators.bandit_likelihood(), items, np.ones(3), REWARDS[items])
    expected = finite_differences(
        lambda z: sum(expected_loss(z, item, REWARDS[item]) for item in items)
    )
    np.testing.assert_allclose(got, expected, atol=1e-8)


def test_a_slate_of_one_is_one_item():
    for make in estimators.REGISTRY.values():
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
EVERYONE = [make() for make in registry.factories().values()] + WRAPPED


def some_rounds(n, seed=0):
    rng = np.random.default_rng(seed)
    for t in range(n):
        choice = Choice(item=jnp.asarray(t % 5), propensity=jnp.asarray(0.5))
        labels = jnp.asarray([t % 3, -1])
        yield jnp.asarray(rng.normal(size=4), jnp.float32), choice, float(t % 2), labels


@lru_cache
def compiled(update):
    return jax.jit(update)


def go_on(rule, state, rounds, observed=True):
    for query, choice, reward, labels in rounds:
        feedback = Feedback(
            jnp.asarray(reward), jnp.asarray(observed), labels if rule.facts.oracle else None
        )
        state = compiled(rule.update)(state, query, choice, feedback)
    return state


def same(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def a_start(rule):
    theta = np.random.default_rng(5).normal(size=(5, 4)).astype(np.float32)
    return jax.jit(rule.init)(theta, np.arange(5) != 3)


@pytest.mark.parametrize("rule", EVERYONE, ids=lambda rule: rule.name)
def test_a_round_without_an_answer_changes_nothing_but_the_count(rule):
    state = go_on(rule, a_start(rule), some_rounds(5))
    after = go_on(rule, state, some_rounds(2, seed=1), observed=False)
    assert after.t == state.t + 2
    same(after._replace(t=state.t), state)


def test_a_round_without_an_answer_does_not_fill_a_batch():
    """Two batches of three, with silent rounds before, within and after them."""
    observed = list(some_rounds(6))
    silent = list(some_rounds(3, seed=1))
    state = a_start(BATCHES)
    for part, heard in [
        (silent, False),
        (observed[:2], True),
        (silent, False),
        (observed[2:5], True),
        (silent[:1], False),
        (observed[5:], True),
        (silent, False),
    ]:
        state = go_on(BATCHES, state, part, observed=heard)
    plain = go_on(BATCHES, a_start(BATCHES), observed)
    assert (state.t, plain.t, plain.extra.count) == (16, 6, 6)
    same(state._replace(t=plain.t), plain)
    assert np.abs(plain.theta - a_start(BATCHES).theta).max() > 1e-3


def recording(rule):
    """The rule, and a list of what each trace of its update was given as labels."""
    given = []

    def update(state, query, choice, feedback):
        given.append(feedback.labels)
        return rule.update(state, query, choice, feedback)

    return rule._replace(update=update), given


WRAPPED_ORACLES = [
    presets.full_information(**STEPS),
    with_query_map(presets.full_information(**STEPS)),
    with_preconditioner(presets.full_information(**STEPS), presets.preconditioners.by_row()),
    with_exploration(presets.full_information(**STEPS)),
    with_exploration(
        adamw(tau=1.0, eta=0.1, estimator=estimators.full_information(), policy=policies.greedy())
    ),
]


@pytest.mark.parametrize("rule", EVERYONE + WRAPPED_ORACLES, ids=lambda rule: rule.name)
def test_labels_are_given_to_oracles_alone(problem, rule):
    catalogue, stream = problem(times=1)
    rule, given = recording(rule)
    state, key, environment = rule.init(*catalogue), jax.random.key(0), Environment()
    jax.eval_shape(partial(scan_rounds, rule), state, environment, stream, key)
    scanned = len(given)
    query = jnp.asarray(0)
    slate = show(rule, state, environment, stream, query, key)
    jax.eval_shape(partial(learn, rule, position=0), state, environment, stream, query, key, slate)
    assert len(given) > scanned > 0
    assert [labels is not None for labels in given] == [rule.facts.oracle] * len(given)


def test_wrappers_pass_on_who_is_an_oracle():
    assert [rule.name for rule in EVERYONE if rule.facts.oracle] == [
        "full_information",
        "mapped_full_information",
        "full_information+linear",
    ]
    assert all(rule.facts.oracle for rule in WRAPPED_ORACLES)


def test_an_estimator_that_learns_from_bits_is_given_no_target(problem):
    catalogue, stream = problem(times=1)
    seen = []

    def recorded(obs):
        seen.append(obs.target)
        return estimators.importance_weighted().coefficients(obs)

    for bandit in (True, False):
        estimator = estimators.Estimator("recorded", recorded, unbiased=False, bandit=bandit)
        rule = rank_one("a", estimator=estimator, policy=policies.softmax(), **STEPS)
        for simulate in (scan_rounds, simulate_blocked):
            seen.clear()
            run = partial(simulate, rule, rule.init(*catalogue), Environment(), stream)
            jax.eval_shape(run, jax.random.key(0))
            assert seen
            assert [target is None for target in seen] == [bandit] * len(seen)
        seen.clear()  # nor where somebody hands labels over
        choice = Choice(item=jnp.asarray(0), propensity=jnp.asarray(0.5))
        feedback = Feedback(jnp.asarray(1.0), labels=jnp.array([2]))
        coefficients(estimator, jnp.zeros(3), choice, feedback, None)
        assert [target is None for target in seen] == [bandit] * len(seen)


@pytest.mark.parametrize("rule", [GREEDY, with_exploration(GREEDY), presets.full_information()])
def test_nor_does_the_blocked_form_give_them_to_others(problem, monkeypatch, rule):
    catalogue, stream = problem(times=1)
    given = []

    def recorded(estimator, z, choice, feedback, axis):
        given.append(feedback.labels)
        return coefficients(estimator, z, choice, feedback, axis)

    monkeypatch.setattr(block, "coefficients", recorded)
    run = partial(simulate_blocked, rule, block=16)
    jax.eval_shape(run, rule.init(*catalogue), Environment(), stream, jax.random.key(0))
    assert given
    assert [labels is not None for labels in given] == [rule.facts.oracle] * len(given)


def test_a_learner_without_a_softmax_runs_and_is_measured_as_unknown(problem):
    catalogue, stream = problem(times=1)
    rule = presets.greedy(**STEPS, projection=projections.none())
    mute = rule._replace(logits=None)
    key = jax.random.key(0)
    trace = scan_rounds(mute, mute.init(*catalogue), Environment(), stream, key)[1]
    plain = scan_rounds(rule, rule.init(*catalogue), Environment(), stream, key)[1]
    np.testing.assert_array_equal(trace.item, plain.item)
    assert np.isnan(trace.loss).all()
    assert np.isfinite(plain.loss).all()
