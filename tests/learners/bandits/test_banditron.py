"""Banditron: the perceptron by hand, from zero and from the documents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners.bandits.banditron import banditron
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import check_learner
from jaxret.types import Stream

RNG = np.random.default_rng(0)
THETA = jnp.asarray(RNG.standard_normal((6, 5)), jnp.float32)
QUERIES = jnp.asarray(RNG.standard_normal((40, 5)), jnp.float32)
STREAM = Stream(QUERIES, jnp.asarray(RNG.integers(0, 6, (40, 1))), jnp.arange(40))


def run(learner):
    return scan_rounds(learner, learner.init(THETA), Environment(), STREAM, jax.random.key(3))


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(banditron(start=start))


def test_from_zero_it_is_the_papers_perceptron():
    """Replayed by the paper's Algorithm 1, which has neither tau nor a step."""
    epsilon = 0.3
    state, trace = run(banditron(tau=0.5, eta=0.5, epsilon=epsilon, start="zero"))
    w = np.zeros((6, 5))
    for t in range(40):
        q, best = np.asarray(QUERIES[t], float), int((w @ np.asarray(QUERIES[t])).argmax())
        shown, success = int(trace.item[t]), int(trace.item[t]) == int(STREAM.labels[t, 0])
        chance = epsilon / 6 + (1 - epsilon) * (shown == best)
        np.testing.assert_allclose(trace.propensity[t], chance, rtol=1e-5)
        w[shown] += success / chance * q
        w[best] -= q
    np.testing.assert_allclose(state.theta, w, atol=1e-4)


def test_from_zero_a_step_changes_no_choice():
    one, other = (run(banditron(eta=eta, start="zero"))[1].item for eta in (2.0**-12, 2.0**-6))
    np.testing.assert_array_equal(one, other)
    assert len(set(np.asarray(one).tolist())) > 1


def test_from_the_documents_rows_stay_on_the_sphere():
    state, _ = run(banditron(eta=0.01))
    np.testing.assert_allclose(jnp.linalg.norm(state.theta, axis=1), 1.0, atol=1e-5)
