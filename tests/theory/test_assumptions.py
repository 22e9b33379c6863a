"""Assumptions of bounds, on runs that violate them for one seed, one tool or one round."""

from math import comb

import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments import availability
from jaxret.environments.environment import Environment, always_available
from jaxret.theory import assumptions
from jaxret.theory.theorems import describe, theorem_5_1


def test_the_start_is_measured_on_the_worst_seed(clean):
    assert assumptions.same_start(clean).holds
    for seed in (0, 17, 95):
        loss = np.array(clean.trace.loss)
        loss[seed, 0] += 0.1
        found = assumptions.same_start(clean._replace(trace=clean.trace._replace(loss=loss)))
        assert not found.holds
        start = float(clean.trace.loss[seed, 0])
        assert found.measured == pytest.approx(0.1 / (1 + start), rel=1e-3)
    assert "the run starts at Theta_1: first loss off by" in [
        a.name for a in theorem_5_1(clean).assumptions
    ]


TOOLS, ROUNDS, RHO = 30, 2000, 0.1


def with_rewards(run, item, wrong):
    """Replace a run's tools, all of them wrong, and mark some of the rewards as flipped."""
    success = np.zeros(np.shape(item), np.float32)
    trace = run.trace._replace(item=item, success=success, reward=success + wrong)
    return run._replace(trace=trace)


def noise_holds(run, rate=RHO):
    return [
        assumptions.label_noise(run, rate).holds,
        assumptions.label_noise_by_tool(run, rate).holds,
    ]


@pytest.mark.parametrize("rho", [0.1, 0.4])
def test_noise_at_the_stated_rate_is_accepted_in_two_hundred_draws(clean, rho):
    """The learner avoids tools that fail, so the choice of tools depends on the noise."""
    rng = np.random.default_rng(0)
    weights = np.tile(1.0 / np.arange(1, TOOLS + 1), (200, 1))
    item, wrong = np.zeros((2, 200, ROUNDS), int)
    for t in range(ROUNDS):
        cumulative = weights.cumsum(axis=1)
        drawn = rng.random((200, 1)) * cumulative[:, -1:]
        item[:, t] = (cumulative < drawn).sum(axis=1)
        wrong[:, t] = rng.random(200) < rho
        weights[np.arange(200), item[:, t]] *= np.where(wrong[:, t], 1.02, 0.99)
    runs = [with_rewards(clean, *pair) for pair in zip(item, wrong, strict=True)]
    assert len({tuple(np.bincount(row) < 20) for row in item}) > 1  # some tools are rare
    assert all(all(noise_holds(run, rho)) for run in runs)


def test_noise_at_the_stated_rate_is_accepted_if_only_rewarded_tools_are_shown_again(clean):
    """Each tool is tried ten times; one that is rewarded is then shown 20 more times."""
    rng, item, wrong = np.random.default_rng(4), [], []
    for tool in range(300):
        rewards = rng.random(30) < RHO
        tried = 10 if not rewards[:10].any() else rewards.argmax() + 21
        item.append(np.full(tried, tool))
        wrong.append(rewards[:tried])
    item, wrong = np.concatenate(item), np.concatenate(wrong)
    assert wrong[np.bincount(item)[item] < 20].sum() == 0  # rarely shown tools have no reward
    assert noise_holds(with_rewards(clean, item, wrong)) == [True, True]


@pytest.mark.parametrize(("liar", "times"), [(3, 40), (29, 20)])
def test_a_tool_whose_rewards_are_always_wrong_is_found(clean, liar, times):
    rng = np.random.default_rng(1)
    item = rng.integers(0, 29, ROUNDS)
    item[item == liar] = (liar + 1) % 29
    item[:times] = liar
    wrong = rng.random(ROUNDS) < RHO
    assert noise_holds(with_rewards(clean, item, wrong)) == [True, True]
    wrong[:times] = True
    lied_to = with_rewards(clean, item, wrong)
    assert noise_holds(lied_to) == [True, False]  # the overall share is still consistent
    found = assumptions.label_noise_by_tool(lied_to, RHO)
    assert f"{times} of {times} rewards of tool {liar} are wrong" in found.required


def test_a_tool_whose_rewards_are_never_wrong_is_found(clean):
    rng = np.random.default_rng(2)
    item, wrong = rng.integers(0, 10, ROUNDS), rng.random(ROUNDS) < 0.4
    wrong[item == 4] = False
    assert not assumptions.label_noise_by_tool(with_rewards(clean, item, wrong), 0.4).holds


def test_tools_that_are_chosen_rarely_are_tested_together(clean):
    rng = np.random.default_rng(3)
    item, wrong = rng.integers(0, 5, ROUNDS), rng.random(ROUNDS) < RHO
    item[:100] = 5 + np.arange(100) % 25  # four times each
    assert noise_holds(with_rewards(clean, item, wrong)) == [True, True]
    wrong[:100] = np.arange(100) % 5 < 2
    found = assumptions.label_noise_by_tool(with_rewards(clean, item, wrong), RHO)
    assert not found.holds
    k = 40 + sum(wrong[100:][item[100:] == tool][:20].sum() for tool in range(5))
    assert f"{k} of 200 rewards of the tools' first rounds are wrong" in found.required


def test_without_noise_one_wrong_reward_is_one_too_many(clean):
    item, wrong = np.arange(ROUNDS) % TOOLS, np.zeros(ROUNDS, int)
    assert noise_holds(with_rewards(clean, item, wrong), 0.0) == [True, True]
    wrong[5] = 1
    assert noise_holds(with_rewards(clean, item, wrong), 0.0) == [False, False]


def test_the_least_p_is_that_of_the_binomial_test(clean):
    item, wrong = np.zeros(50, int), np.arange(50) % 5 == 0
    found = assumptions.label_noise_by_tool(with_rewards(clean, item, wrong), RHO)
    probabilities = np.array([comb(50, k) * RHO**k * (1 - RHO) ** (50 - k) for k in range(51)])
    assert found.measured == pytest.approx(2 * 2 * probabilities[10:].sum())  # for two tests


def test_a_tool_that_came_late_voids_the_bounds(clean):
    assert assumptions.every_item_available(clean).holds
    environment = Environment(**availability.later(8, 0.25, at=100)._asdict())
    late = clean._replace(always_available=always_available(environment, 320, jnp.ones(8, bool)))
    found = assumptions.every_item_available(late)
    assert (found.holds, found.measured, found.is_measured) == (False, 2, True)
    bound = theorem_5_1(late)
    assert not bound.holds
    assert "FAILS  every item in every round: absent ones 2, required <= 0" in describe(bound)


def test_unknown_availability_is_reported_as_not_measured(clean):
    silent = clean._replace(always_available=None)
    found = assumptions.every_item_available(silent)
    assert (found.holds, found.is_measured) == (True, False)
    bound = theorem_5_1(silent)
    assert bound.holds
    assert "  ?      every item in every round: absent ones were not measured" in describe(bound)
    assert "not measured" not in describe(theorem_5_1(clean))
