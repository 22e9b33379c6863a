"""Neural-linear: of two tools each is shown as often as Student's t says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxret.learners.bandits.neural_linear import neural_linear
from jaxret.testing import check_learner


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(neural_linear(start=start))


def test_two_tools_are_shown_as_often_as_their_difference_is_positive(rounds, taught):
    """w (x_0 - x_1) is Student's t, since the variance of the noise is drawn too."""
    world, n, ridge = rounds(items=2, rounds=4), 10_000, 3.0
    learner = neural_linear(ridge=ridge, shape=1.1, rate=0.02)
    state = taught(learner, world)[-1]

    def features(query):
        products, cosine = 6**0.5 * world.theta * query, (world.theta @ query)[:, None]
        return np.concatenate([products, cosine, np.tile(query, (2, 1))], axis=1)

    x = np.stack([features(q)[a] for q, a in zip(world.queries, world.items, strict=True)])
    y, prior = world.rewards, 1.0 * (np.arange(13) == 6)
    precision = ridge * np.eye(13) + x.T @ x
    mean = np.linalg.solve(precision, ridge * prior + x.T @ y)
    shape = 1.1 + len(y) / 2
    rate = 0.02 + 0.5 * (y @ y + ridge * prior @ prior - mean @ precision @ mean)
    normal = []
    with jax.enable_x64(True):
        act = jax.jit(jax.vmap(learner.act, (None, None, 0)))
        for t, query in enumerate(world.queries):
            slates = act(state, jnp.asarray(query), jax.random.split(jax.random.key(t), n))
            away = features(query)[0] - features(query)[1]
            width = np.sqrt(rate / shape * (away @ np.linalg.solve(precision, away)))
            chance = stats.t.cdf(away @ mean / width, df=2 * shape)
            normal.append(abs(stats.norm.cdf(away @ mean / width) - chance))
            shown = np.mean(slates.items[:, 0] == 0)
            np.testing.assert_allclose(shown, chance, atol=4 * np.sqrt(chance * (1 - chance) / n))
            assert np.isnan(slates.propensity).all()
    assert max(normal) > 0.01  # the normal distribution would say something else


@pytest.mark.parametrize(("name", "value"), [("shape", 1.0), ("rate", 0.0), ("ridge", 0.0)])
def test_settings_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be > [01], got {value}"):
        neural_linear(**{name: value})
