"""Oracles of the form of a rule: labels in place of rewards, replayed too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import jaxret as jr
from jaxret.learners.replay import entry_of, with_experience_replay
from jaxret.rules import projections
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback

TAU, ETA = 0.5, 0.1


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    usage = rng.normal(size=(12, 6))
    theta, labels = usage + rng.normal(size=(12, 6)), rng.integers(12, size=120)
    queries = usage[labels] + 0.5 * rng.normal(size=(120, 6))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (theta, queries)]
    prior = (rng.random((120, 12)) < 0.3) * rng.random((120, 12))
    return jr.Task.from_arrays(*unit, labels, prior=prior)


def test_a_replayed_round_follows_the_gradient_of_its_label(task):
    free = jr.full_information(tau=TAU, eta=ETA, projection=projections.none())
    learner = with_experience_replay(free, per_round=2)
    theta, query, label = task.theta.astype(np.float64), task.queries[0], 5
    state = quick_jit(learner.init)(jnp.asarray(task.theta))
    choice = Choice(jnp.int32(3), jnp.float32(1))  # a wrong item is shown
    feedback = Feedback(jnp.float32(0), labels=jnp.asarray([label, -1]))
    state = quick_jit(learner.update)(state, query, choice, feedback)
    right = np.eye(12)[label]
    for times in (1, 2):  # the round itself, then the same round twice at once
        c = softmax(theta @ query / TAU) - right
        theta = theta - times * ETA / TAU * np.outer(c, query)
    np.testing.assert_allclose(state.theta, theta, atol=2e-6)


SLOW = [jr.oracle(map_every=8), jr.with_labels(jr.with_lexical(jr.mapped(), width=12))]


@pytest.mark.parametrize(
    "learner",
    [
        jr.with_labels(jr.greedy_replayed(per_round=2)),
        *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW),
    ],
    ids=lambda learner: learner.name,
)
def test_it_satisfies_the_contract(learner):
    check_learner(learner)


def test_each_round_keeps_another_of_several_right_items():
    rule, choice = jr.with_labels(jr.greedy_replayed()).structure.rule, Choice(0, jnp.float32(0.5))
    several = Feedback(jnp.float32(0), labels=jnp.asarray([4, 7, 9, -1]))
    kept, rewards = quick_jit(jax.vmap(lambda t: entry_of(rule, t, choice, several)))(np.arange(4))
    assert kept.item.tolist() == [4, 7, 9, 4]
    assert rewards.tolist() == [1, 1, 1, 1]
    nothing = Feedback(jnp.float32(1), labels=jnp.asarray([-1, -1]))
    assert entry_of(rule, jnp.int32(0), choice, nothing)[1] == 0


def test_a_bandit_keeps_what_was_shown():
    rule, choice = jr.greedy_replayed().structure.rule, Choice(jnp.int32(2), jnp.float32(0.5))
    kept, reward = entry_of(rule, jnp.int32(0), choice, Feedback(jnp.float32(0.3)))
    assert (int(kept.item), float(kept.propensity), float(reward)) == (2, 0.5, pytest.approx(0.3))


def test_a_round_without_a_right_item_is_not_replayed(task):
    alone = jr.with_labels(jr.greedy(tau=TAU, eta=ETA))
    replayed = jr.with_labels(with_experience_replay(jr.greedy(tau=TAU, eta=ETA), per_round=1))
    choice = Choice(jnp.int32(3), jnp.float32(1))
    none = Feedback(jnp.float32(0), labels=jnp.asarray([-1]))

    def learnt(one):
        return one.update(one.init(task.theta), task.queries[0], choice, none).theta

    np.testing.assert_allclose(*quick_jit(lambda: (learnt(alone), learnt(replayed)))(), atol=1e-7)


def test_the_oracle_is_better_than_the_rule_of_its_form(task):
    theta = -task.theta  # documents that mislead
    poor = jr.Task.from_arrays(theta, task.queries, task.labels)
    rule = jr.greedy(tau=0.1, eta=0.05)
    runs = [jr.simulate(one, poor, exposures=3) for one in (rule, jr.with_labels(rule))]
    assert runs[1].accuracy.mean > runs[0].accuracy.mean + 0.1
