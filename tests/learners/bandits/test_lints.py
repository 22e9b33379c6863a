"""Thompson sampling: of two tools each is shown as often as the normal distribution says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxret.learners.bandits.lints import lints
from jaxret.testing import check_learner


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(lints(start=start))


def test_two_tools_are_shown_as_often_as_their_difference_is_positive(rounds, taught):
    """w (x_0 - x_1) is normal."""
    world, n, alpha, ridge = rounds(items=2, rounds=12), 10_000, 0.4, 0.8
    learner = lints(alpha=alpha, ridge=ridge)
    state = taught(learner, world)[-1]

    def features(query):
        products = 6**0.5 * world.theta * query
        return np.concatenate([products, (world.theta @ query)[:, None], np.ones((2, 1))], axis=1)

    x = np.stack([features(q)[a] for q, a in zip(world.queries, world.items, strict=True)])
    inverse = np.linalg.inv(ridge * np.eye(8) + x.T @ x)
    mean = inverse @ (ridge * (np.arange(8) == 6) + x.T @ world.rewards)
    with jax.enable_x64(True):
        act = jax.jit(jax.vmap(learner.act, (None, None, 0)))
        for t, query in enumerate(world.queries[:4]):
            slates = act(state, jnp.asarray(query), jax.random.split(jax.random.key(t), n))
            away = features(query)[0] - features(query)[1]
            chance = stats.norm.cdf(away @ mean / (alpha * np.sqrt(away @ inverse @ away)))
            shown = np.mean(slates.items[:, 0] == 0)
            np.testing.assert_allclose(shown, chance, atol=4 * np.sqrt(chance * (1 - chance) / n))
            assert 0.02 < chance < 0.98
            assert np.isnan(slates.propensity).all()


def test_without_width_it_shows_the_best_mean(rounds, taught):
    world, learner = rounds(), lints(alpha=0.0)
    state = taught(learner, world)[-1]
    with jax.enable_x64(True):
        scores = learner.scores(state, jnp.asarray(world.queries))
        shown = [
            int(learner.act(state, jnp.asarray(query), jax.random.key(0)).items[0])
            for query in world.queries[:5]
        ]
    assert shown == np.argmax(scores, axis=1)[:5].tolist()


def test_a_negative_width_is_refused():
    with pytest.raises(ValueError, match=r"alpha must be >= 0, got -1"):
        lints(alpha=-1.0)
