"""Offsets against NumPy: logits, usage by hand, and the gradient by finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import jaxret as jr
from jaxret.environments.environment import Environment
from jaxret.learners.rank_one import rank_one
from jaxret.rules import estimators, offsets, policies
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback, Prior, Query
from tests.problems import slope

RNG = np.random.default_rng(4)
THETA = RNG.normal(size=(6, 3))
VECTOR = RNG.normal(size=3)
PRIOR = np.array([0.0, 0.9, 0.0, 0.2, 0.0, 0.4])
SPARSE = Prior(np.array([1, 3, 5, -1]), np.array([0.9, 0.2, 0.4, 0.0]))
ABSENT = 2


def test_a_prior_is_made_dense_and_padding_is_dropped():
    several = jax.tree.map(lambda x: np.stack([x, x[::-1]])[:, None], SPARSE)
    with jax.enable_x64(True):
        dense = quick_jit(lambda *priors: [offsets.dense(x, THETA[:, 0], None) for x in priors])
        whole, many = jax.device_get(dense(SPARSE, several))
    np.testing.assert_array_equal(whole, PRIOR)
    np.testing.assert_array_equal(many, np.stack([PRIOR, PRIOR])[:, None])


@pytest.mark.parametrize("weight", [0.0, 0.35, 0.8])
@pytest.mark.parametrize("strength", [0.0, 0.6, 1.0])
def test_logits_and_the_step_are_those_of_the_formula(weight, strength):
    """The oracle follows the exact gradient, so its step is that of the loss with offsets."""
    tau, eta, label = 0.4, 0.01, 3
    full, greedy = estimators.full_information(), policies.greedy()
    oracle = rank_one("oracle", estimator=full, policy=greedy, tau=tau, eta=eta)
    learner = jr.with_balance(jr.with_lexical(oracle, weight, width=4), strength)
    mean = np.array([0.5, 2.0, 1.0, 0.25, 1.5, 1.0])
    available = np.arange(6) != ABSENT

    def logits(theta):
        z = ((1 - weight) * theta @ VECTOR + weight * PRIOR) / tau - strength * np.log(mean)
        return np.where(available, z, -np.inf)

    def loss(theta):
        return -log_softmax(logits(theta))[label]

    def computed():
        state = learner.init(jnp.asarray(THETA), available)
        usage = offsets.Usage(jnp.asarray(mean), jnp.full(6, 30.0))
        state, query = state._replace(extra=((), (), usage)), Query(VECTOR, SPARSE)
        many = jax.tree.map(lambda x: x[None], query)
        choice = Choice(jnp.asarray(0), jnp.asarray(0.5))
        feedback = Feedback(jnp.asarray(1.0), True, jnp.asarray([label]))
        new = learner.update(state, query, choice, feedback)
        return learner.logits(state, query), learner.scores(state, many)[0], new

    with jax.enable_x64(True):
        z, scores, new = jax.device_get(quick_jit(computed)())
    np.testing.assert_allclose(z, logits(THETA), rtol=1e-12)
    np.testing.assert_array_equal(np.argsort(-scores), np.argsort(-logits(THETA)))
    # with 1 - weight in the unit of eta: a step of eta / tau in rows that are divided by tau
    np.testing.assert_allclose(new.theta, THETA - eta * slope(loss, THETA), atol=1e-9)
    p = softmax(logits(THETA) + strength * np.log(mean))
    expected = np.where(available, mean + (5 * p - mean) / 31, mean)
    np.testing.assert_allclose(new.extra[2].mean, expected, rtol=1e-12)
    np.testing.assert_array_equal(new.extra[2].count, 30 + available)


def test_usage_is_the_mean_of_the_model_without_balance(small):
    """Replay a static run in NumPy, in which a tool leaves and another arrives."""
    task = small()
    arrives, leaves = np.zeros(12, int), np.full(12, 60)
    arrives[4], leaves[7] = 20, 35
    times = Environment(arrives=jnp.asarray(arrives), leaves=jnp.asarray(leaves))
    run = jr.simulate(jr.with_balance(jr.frozen(tau=0.3), 0.8), task, environment=times)
    usage, count = np.ones(12), np.full(12, 20.0)
    for t, query in enumerate(run.order[0]):
        there = (arrives <= t) & (t < leaves)
        z = np.where(there, task.theta @ task.queries[query] / 0.3, -np.inf)
        assert run.trace.item[0, t] == (z - 0.8 * np.log(usage)).argmax()
        p = softmax(z)
        count = count + there
        usage = usage + np.where(there, there.sum() * p - usage, 0) / count
    np.testing.assert_allclose(run.state(0).extra[2].mean, usage, rtol=1e-4)
    np.testing.assert_array_equal(run.state(0).extra[2].count, count)
    plain = jr.simulate(jr.frozen(tau=0.3), task, environment=times)
    assert (plain.trace.item != run.trace.item).any()
