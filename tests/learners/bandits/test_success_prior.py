"""A success prior per tool: its odds, and gradient steps on the likelihood."""

from functools import partial

import numpy as np
import pytest

from jaxret.learners.bandits.success_prior import success_prior
from tests.learners.bandits.rounds import compute, make_rounds, taught
from tests.problems import slope

TAU, ETA, A, B = 0.3, 0.02, 1.5, 4.0
SETTINGS = {"tau": TAU, "eta": ETA, "successes": A, "failures": B}


def logits_of(theta, query, a, b):
    return theta @ query / TAU + np.log(a / b)


def loss(theta, query, a, b, item, y):
    """Compute -log P(y | item)."""
    z = logits_of(theta, query, a, b)
    p = np.exp(z - np.logaddexp.reduce(z))[item]
    return -y * np.log(p) - (1 - y) * np.log(1 - p)


@pytest.mark.parametrize("start", ["document", "zero"])
def test_rows_descend_on_the_likelihood_and_tools_count_their_rewards(start):
    world = make_rounds(rounds=20)
    learner = success_prior(**SETTINGS, start=start)
    state = taught(learner, world)[-1]
    theta, a, b = world.theta * (start == "document"), np.full(5, A), np.full(5, B)
    for q, item, y in zip(world.queries, world.items, world.rewards, strict=True):
        theta = theta - ETA * slope(partial(loss, query=q, a=a, b=b, item=item, y=y), theta)
        if start == "document":
            theta /= np.linalg.norm(theta, axis=1, keepdims=True)
        a[item] += y
        b[item] += 1 - y
    np.testing.assert_allclose(state.theta, theta, atol=1e-7)
    np.testing.assert_allclose(state.extra.successes, a)
    np.testing.assert_allclose(state.extra.failures, b)
    z = logits_of(theta, world.queries[0], a, b)

    def computed(state, query):
        logits, probabilities = learner.logits(state, query), learner.probabilities(state, query)
        return logits, learner.scores(state, query[None])[0], probabilities

    logits, scores, probabilities = compute(computed, state, world.queries[0])
    np.testing.assert_allclose(logits, z, atol=1e-6)
    np.testing.assert_allclose(scores, z, atol=1e-6)
    np.testing.assert_array_equal(probabilities, np.arange(5) == z.argmax())
