"""SquareCB: descent on the square loss by finite differences, and who is shown."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.squarecb import squarecb
from jaxret.testing import check_learner

ETA, GAMMA = 0.4, 30.0


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(squarecb(start=start))


def slope(loss, at, step=1e-6):
    """Central differences of a function of a vector."""
    ways = step * np.eye(len(at))
    return np.array([(loss(at + way) - loss(at - way)) / (2 * step) for way in ways])


@pytest.mark.parametrize("start", ["document", "zero"])
def test_rows_and_intercept_descend_on_the_square_loss(rounds, taught, start):
    world = rounds(rounds=40)
    states = taught(squarecb(eta=ETA, start=start), world)
    theta, b = world.theta * (start == "document"), 0.0
    shortened = 0
    for q, a, y in zip(world.queries, world.items, world.rewards, strict=True):

        def loss(w, q=q, y=y):
            return 0.5 * (w[:-1] @ q + w[-1] - y) ** 2

        moved = np.append(theta[a], b) - ETA * slope(loss, np.append(theta[a], b))
        length = np.linalg.norm(moved[:-1])
        shortened += length > 1
        theta[a], b = moved[:-1] / max(1.0, length), moved[-1]
    np.testing.assert_allclose(states[-1].theta, theta, atol=1e-8)
    np.testing.assert_allclose(states[-1].extra, b, atol=1e-8)
    assert shortened > 5 or start == "zero"


def test_the_better_a_tool_is_predicted_to_be_the_more_it_is_shown(rounds, taught):
    world, learner = rounds(), squarecb(gamma=GAMMA, eta=ETA)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 4)
    k = 4
    with jax.enable_x64(True):
        for query in world.queries[:5]:
            f = np.clip(state.theta @ query + state.extra, 0, 1)[:4]
            gap = f.max() - f
            expected = 1 / (k + k * GAMMA * gap)
            expected[f.argmax()] = 1 - np.delete(expected, f.argmax()).sum()
            chances = learner.chances(state, jnp.asarray(query))
            np.testing.assert_allclose(chances, [*expected, 0], atol=1e-12)
        slate = learner.act(state, jnp.asarray(query), jax.random.key(2))
    assert slate.propensity[0] == chances[slate.items[0]]


def test_scores_are_predicted_means(rounds, taught):
    world, learner = rounds(), squarecb(eta=ETA)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 4)
    with jax.enable_x64(True):
        scores = np.asarray(learner.scores(state, jnp.asarray(world.queries[:3])))
    expected = world.queries[:3] @ state.theta.T + state.extra
    np.testing.assert_allclose(scores[:, :4], expected[:, :4], atol=1e-12)
    assert np.isneginf(scores[:, 4]).all()


@pytest.mark.parametrize(("name", "value"), [("gamma", 0.0), ("eta", -0.1)])
def test_settings_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be >=? 0, got {value}"):
        squarecb(**{name: value})
