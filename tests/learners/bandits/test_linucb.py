"""LinUCB, round by round, against Algorithm 1 with matrices that are inverted."""

import jax
import numpy as np
import pytest

from jaxret.learners.bandits.linucb import linucb
from jaxret.testing import check_learner

ALPHA, RIDGE, SCALE = 0.6, 0.8, 0.5


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(linucb(start=start))


def test_it_shows_what_algorithm_1_shows(rounds, taught):
    world = rounds()
    learner = linucb(alpha=ALPHA, ridge=RIDGE, scale=SCALE)
    states = taught(learner, world)
    matrices = np.stack([RIDGE * np.eye(6)] * 5)
    b = RIDGE * SCALE * world.theta
    with jax.enable_x64(True):
        act, chances = jax.jit(learner.act), jax.jit(learner.chances)
        for t, query in enumerate(world.queries):
            inverses = np.linalg.inv(matrices)
            bonus = np.sqrt(np.einsum("i,aij,j->a", query, inverses, query))
            upper = np.einsum("aij,aj,i->a", inverses, b, query) + ALPHA * bonus
            slate = act(states[t], query, jax.random.key(t))
            assert slate.items[0] == upper.argmax()
            assert slate.propensity[0] == 1
            np.testing.assert_array_equal(chances(states[t], query), np.arange(5) == upper.argmax())
            a = world.items[t]  # what is taught, whoever was shown
            matrices[a] += np.outer(query, query)
            b[a] += world.rewards[t] * query


def test_a_negative_bonus_is_refused():
    with pytest.raises(ValueError, match=r"alpha must be >= 0, got -1"):
        linucb(alpha=-1.0)
