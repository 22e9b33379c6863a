"""Epsilon-greedy by ridge regressions: who is shown, with which chance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.ridge_epsilon_greedy import ridge_epsilon_greedy
from jaxret.testing import check_learner


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(ridge_epsilon_greedy(start=start))


def test_it_shows_the_best_mean_and_any_tool_in_a_share_of_the_rounds(rounds, taught):
    world, learner = rounds(), ridge_epsilon_greedy(epsilon=0.4, ridge=0.7, scale=0.3)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 1)
    query = world.queries[3]
    with jax.enable_x64(True):
        means = np.asarray(learner.scores(state, query[None])[0])
        chances = np.asarray(learner.chances(state, query))
        expected = 0.1 * (np.arange(5) != 1)
        expected[means.argmax()] += 0.6
        np.testing.assert_allclose(chances, expected, atol=1e-12)
        keys = jax.random.split(jax.random.key(0), 4000)
        slates = jax.jit(jax.vmap(learner.act, (None, None, 0)))(state, jnp.asarray(query), keys)
    shown = np.bincount(slates.items[:, 0], minlength=5) / 4000
    np.testing.assert_allclose(shown, expected, atol=4 * np.sqrt(0.25 / 4000))
    np.testing.assert_allclose(slates.propensity[:, 0], expected[slates.items[:, 0]], atol=1e-12)


def test_a_share_above_one_is_refused():
    with pytest.raises(ValueError, match=r"epsilon must be in \[0, 1\], got 1.5"):
        ridge_epsilon_greedy(epsilon=1.5)
