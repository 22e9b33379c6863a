"""LinUCB with one model, round by round, against matrices that are inverted."""

import jax
import numpy as np
import pytest

from jaxret.learners.bandits.linucb_shared import linucb_shared
from jaxret.testing import check_learner

ALPHA, RIDGE = 0.6, 0.8


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(linucb_shared(start=start))


def test_it_shows_the_best_upper_bound(rounds, taught):
    world = rounds(rounds=30)
    learner = linucb_shared(alpha=ALPHA, ridge=RIDGE)
    states = taught(learner, world)
    matrix, b = RIDGE * np.eye(8), RIDGE * (np.arange(8) == 6)
    other = 0
    with jax.enable_x64(True):
        act, chances = jax.jit(learner.act), jax.jit(learner.chances)
        for t, query in enumerate(world.queries):
            products = 6**0.5 * world.theta * query
            cosine = world.theta @ query
            x = np.concatenate([products, cosine[:, None], np.ones((5, 1))], axis=1)
            inverse = np.linalg.inv(matrix)
            bonus = ALPHA * np.sqrt(np.einsum("ni,ij,nj->n", x, inverse, x))
            best = (x @ inverse @ b + bonus).argmax()
            other += best != (x @ inverse @ b).argmax()
            slate = act(states[t], query, jax.random.key(t))
            assert (slate.items[0], slate.propensity[0]) == (best, 1)
            np.testing.assert_array_equal(chances(states[t], query), np.arange(5) == best)
            mine = x[world.items[t]]  # what is taught, whoever was shown
            matrix, b = matrix + np.outer(mine, mine), b + world.rewards[t] * mine
    assert other >= 3  # rounds in which the bonus decides


def test_a_negative_bonus_is_refused():
    with pytest.raises(ValueError, match=r"alpha must be >= 0, got -1"):
        linucb_shared(alpha=-1.0)
