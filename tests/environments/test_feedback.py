"""Poisoned, noisy and missing rewards, and clicks, against hand computation and frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import feedback
from jaxret.environments.environment import Environment, respond
from jaxret.testing import quick_jit
from jaxret.types import Slate
from tests.environments.conftest import taught

SHARES = {"after_success": 0.2, "after_failure": 0.7}
CLICKED = Slate(items=jnp.array([7, 2, 9, 4]), propensity=jnp.array([0.4, 0.3, 0.2, 0.1]))
# Position j = 1 .. 4 has weight 1 / j, times 0.1 unless the item is right, as the third one is.
CLICKS = np.array([0.1, 0.05, 1 / 3, 0.025]) / (0.1 + 0.05 + 1 / 3 + 0.025)


def answers(environment, items, n):
    """Return n times the feedback on a slate, and whether the tool used is right, which 7 is."""
    slate = Slate(jnp.asarray(items), jnp.ones(len(items)))
    ask = lambda key: respond(environment, key, slate, jnp.array([7]), jnp.asarray(0))  # noqa: E731
    _, *found = quick_jit(jax.vmap(ask))(jax.random.split(jax.random.key(0), n))
    return jax.device_get(found)


@pytest.mark.parametrize(
    ("form", "false_reward"), [("blocked", None), ("scan", 0.0), ("scan", 1.0)]
)
def test_poisoned_rewards_are_false_for_the_attacked_tool_and_queries_alone(
    task, form, false_reward
):
    attack = feedback.poisoned(
        items=8, queries=len(task), tool=3, share=0.4, false_reward=false_reward, seed=1
    )
    lying = np.asarray(attack.queries)
    assert lying.sum() == 16
    environment = jr.Environment(poison=attack)
    run = jr.simulate(jr.orag(tau=0.5), task, exposures=4, environment=environment, form=form)
    success, reward, item = run.trace.success[0], run.trace.reward[0], run.trace.item[0]
    hit = (item == 3) & lying[run.order[0]]
    assert hit.sum() >= 3
    false = 1 - success if false_reward is None else false_reward
    np.testing.assert_array_equal(reward, np.where(hit, false, success))


@pytest.mark.parametrize(("tool", "share_of_ones"), [(9, 1.0), (7, 0.5)])
def test_poison_replaces_the_noisy_reward_of_the_tool_that_is_used(tool, share_of_ones):
    """The user clicks the second of two tools, and half of the rewards are noise."""
    environment = Environment(
        noise_rate=0.5,
        reranker=lambda key, slate, labels, query: 1,
        poison=feedback.poisoned(items=10, queries=1, tool=tool, false_reward=1.0),
    )
    answer, _ = answers(environment, [7, 9], 400)
    error = np.sqrt(share_of_ones * (1 - share_of_ones) / 400)
    assert abs(answer.reward.mean() - share_of_ones) <= 4 * error


def test_by_default_all_tools_and_all_queries_are_poisoned():
    attack = feedback.poisoned(items=5, queries=7)
    assert attack.tools.all()
    assert attack.queries.all()
    assert not feedback.poisoned(items=5, queries=7, share=0.0).queries.any()


def test_missing_answers_have_their_shares_and_are_nan_in_the_trace(task):
    environment = jr.Environment(censoring=feedback.censored_by_success(**SHARES))
    run = jr.simulate(jr.frozen(), task, exposures=60, seeds=3, environment=environment)
    silent, success = np.isnan(run.trace.reward), np.asarray(run.trace.success) > 0
    for name, where in (("after_success", success), ("after_failure", ~success)):
        share, n = silent[where].mean(), where.sum()
        error = np.sqrt(SHARES[name] * (1 - SHARES[name]) / n)
        assert abs(share - SHARES[name]) < 4 * error
    np.testing.assert_array_equal(run.trace.reward[~silent], success[~silent])


def test_a_learner_learns_from_answered_rounds_alone(task):
    """Repeat only the answered rounds, one by one."""
    learner = jr.greedy()
    censoring = feedback.censored_by_success(after_success=0.5, after_failure=0.5)
    environment = jr.Environment(censoring=censoring)
    run = jr.simulate(learner, task, exposures=2, environment=environment)
    state = learner.init(task.theta)
    for t in np.flatnonzero(~np.isnan(run.trace.reward[0])):
        state = taught(run, state, t)
    np.testing.assert_allclose(run.states.theta[0], state.theta, atol=1e-5)
    assert run.states.t[0] == len(run.order[0])  # rounds without an answer are counted


def test_the_reward_of_an_unanswered_round_is_0():
    """The tool shown is right, so the reward of every answered round is 1."""
    environment = Environment(censoring=feedback.censored_by_success(**SHARES))
    answer, success = answers(environment, [7], 200)
    assert success.all()
    np.testing.assert_array_equal(answer.reward, answer.observed)
    assert 10 < (~answer.observed).sum() < 80


def test_whether_an_answer_comes_depends_on_success_and_not_on_the_noisy_reward():
    """The tool is right and half of the rewards are wrong, yet only a fifth of them are missing."""
    noisy = Environment(censoring=feedback.censored_by_success(**SHARES), noise_rate=0.5)
    answer, _ = answers(noisy, [7], 2_000)
    assert abs(1 - answer.observed.mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 2_000)
    answered = answer.reward[answer.observed]
    assert abs(answered.mean() - 0.5) < 4 * np.sqrt(0.25 / len(answered))


def test_click_probabilities_by_hand():
    got = feedback.click_probabilities(CLICKED, jnp.array([9, -1]), bias=1.0, lure=0.1)
    np.testing.assert_allclose(got, CLICKS, rtol=1e-6)
    level = feedback.click_probabilities(CLICKED, jnp.array([-1, -1]), bias=0.0, lure=0.1)
    np.testing.assert_allclose(level, 0.25, rtol=1e-6)


def test_clicks_have_their_probabilities():
    click = feedback.position_biased_clicks(bias=1.0, lure=0.1)
    keys = jax.random.split(jax.random.key(1), 20_000)
    one = lambda key: click(key, CLICKED, jnp.array([9, -1]), jnp.asarray(0))  # noqa: E731
    places = quick_jit(jax.vmap(one))(keys)
    often = np.bincount(places, minlength=4) / len(keys)
    assert (np.abs(often - CLICKS) < 4 * np.sqrt(CLICKS * (1 - CLICKS) / len(keys))).all()


def test_the_clicked_tool_gives_the_reward(task):
    """Wrong tools rarely attract clicks, so a slate that contains a right tool succeeds."""
    sure = jr.Environment(reranker=feedback.position_biased_clicks(lure=1e-9))
    run = jr.simulate(jr.greedy(k=5, eta=0.0), task, environment=sure, form="scan")
    best = np.argsort(-(task.queries @ task.theta.T), axis=1)[:, :5]
    right = (best[:, :, None] == task.labels[:, None]).any(axis=(1, 2))
    np.testing.assert_array_equal(run.trace.success[0], right[run.order[0]])
    assert 0.1 < right.mean() < 0.99
