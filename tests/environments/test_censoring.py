"""Answers that do not come: how often, and that nothing is learnt from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import censoring
from jaxret.environments.environment import Environment, respond
from jaxret.types import Slate

SHARES = {"after_success": 0.2, "after_failure": 0.7}


def test_answers_fail_to_come_as_often_as_is_said_and_the_trace_says_so(task):
    world = jr.Environment(censoring=censoring.by_success(**SHARES))
    run = jr.simulate(jr.frozen(), task, exposures=60, seeds=3, environment=world)
    silent, success = np.isnan(run.trace.reward), np.asarray(run.trace.success) > 0
    for name, where in (("after_success", success), ("after_failure", ~success)):
        share, n = silent[where].mean(), where.sum()
        error = np.sqrt(SHARES[name] * (1 - SHARES[name]) / n)
        assert abs(share - SHARES[name]) < 4 * error
    np.testing.assert_array_equal(run.trace.reward[~silent], success[~silent])


@pytest.mark.parametrize("learner", [jr.greedy(), jr.mapped()], ids=["blocked", "scan"])
def test_a_learner_learns_from_the_answers_that_come_and_from_no_others(task, learner):
    """The same rounds by hand, the silent ones left out."""
    world = jr.Environment(censoring=censoring.by_success(after_success=0.5, after_failure=0.5))
    run = jr.simulate(learner, task, exposures=2, environment=world)
    assert run.how == ("blocked" if learner.name == "greedy" else "scan")
    state, update = learner.init(task.theta), jax.jit(learner.update)
    trace = run.trace
    for query, item, propensity, reward in zip(
        run.order[0], trace.item[0], trace.propensity[0], trace.reward[0], strict=True
    ):
        if not np.isnan(reward):
            choice = jr.Choice(item, propensity)
            state = update(state, task.queries[query], choice, jr.Feedback(reward))
    np.testing.assert_allclose(run.states.theta[0], state.theta, atol=2e-6)
    assert run.states.t[0] == len(run.order[0])  # silent rounds are counted


def test_a_learner_is_told_nothing_of_a_silent_round():
    """The tool shown is right: its reward is 1 where somebody answers, and nowhere else."""
    world = Environment(censoring=censoring.by_success(**SHARES))
    slate = Slate(items=jnp.array([7]), propensity=jnp.array([1.0]))
    ask = lambda key: respond(world, key, slate, jnp.array([7]), jnp.asarray(0))  # noqa: E731
    _, feedback, success = jax.vmap(ask)(jax.random.split(jax.random.key(0), 200))
    assert success.all()
    np.testing.assert_array_equal(feedback.reward, feedback.observed)
    assert 10 < (~feedback.observed).sum() < 80


def test_silence_follows_what_happened_and_not_the_bit_that_is_told():
    """The tool is right, half of the bits say otherwise: a fifth are silent, as after a success."""
    noisy = Environment(censoring=censoring.by_success(**SHARES), noise_rate=0.5)
    slate = Slate(items=jnp.array([7]), propensity=jnp.array([1.0]))
    ask = lambda key: respond(noisy, key, slate, jnp.array([7]), jnp.asarray(0))  # noqa: E731
    feedback = jax.vmap(ask)(jax.random.split(jax.random.key(0), 2_000))[1]
    assert abs(1 - feedback.observed.mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 2_000)
    answered = feedback.reward[feedback.observed]
    assert abs(answered.mean() - 0.5) < 4 * np.sqrt(0.25 / len(answered))


@pytest.mark.parametrize("name", list(SHARES))
def test_shares_outside_their_range_are_refused(name):
    with pytest.raises(ValueError, match=rf"{name} must be in \[0, 1\], got 1.5"):
        censoring.by_success(**(SHARES | {name: 1.5}))
