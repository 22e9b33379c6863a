"""FastCB: descent on the log loss by finite differences, and who is shown."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners.bandits.fastcb import fastcb
from jaxret.testing import check_learner

ETA, TAU, GAMMA, CENTRE = 0.05, 0.2, 30.0, 0.3


@pytest.mark.parametrize("start", ["document", pytest.param("zero", marks=pytest.mark.slow)])
def test_it_keeps_the_common_promises(start):
    check_learner(fastcb(start=start))


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def slope(loss, at, step=1e-6):
    """Central differences of a function of a vector."""
    ways = step * np.eye(len(at))
    return np.array([(loss(at + way) - loss(at - way)) / (2 * step) for way in ways])


@pytest.mark.parametrize("start", ["document", "zero"])
def test_rows_and_intercept_descend_on_the_log_loss(rounds, taught, start):
    world = rounds(rounds=40)
    world.rewards[3] = 0.3  # how well it worked, which is no bit
    states = taught(fastcb(eta=ETA, tau=TAU, centre=CENTRE, start=start), world)
    theta, b = (world.theta.copy(), CENTRE) if start == "document" else (0 * world.theta, 0.0)
    for q, a, y in zip(world.queries, world.items, world.rewards, strict=True):

        def loss(w, q=q, y=y):
            p = sigmoid((w[:-1] @ q - w[-1]) / TAU)
            return -y * np.log(p) - (1 - y) * np.log(1 - p)

        moved = np.append(theta[a], b) - ETA * slope(loss, np.append(theta[a], b))
        theta[a], b = moved[:-1] / max(1.0, np.linalg.norm(moved[:-1])), moved[-1]
    np.testing.assert_allclose(states[-1].theta, theta, atol=1e-7)
    np.testing.assert_allclose(states[-1].extra, b, atol=1e-7)


def test_chances_are_those_of_the_paper_in_losses(rounds, taught):
    world, learner = rounds(), fastcb(gamma=GAMMA, eta=ETA, tau=TAU)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 4)
    with jax.enable_x64(True):
        for query in world.queries[:5]:
            losses = 1 - sigmoid((state.theta @ query - state.extra) / TAU)[:4]
            least = losses.min()
            expected = least / (4 * least + 4 * GAMMA * (losses - least))
            expected[losses.argmin()] = 1 - np.delete(expected, losses.argmin()).sum()
            chances = learner.chances(state, jnp.asarray(query))
            np.testing.assert_allclose(chances, [*expected, 0], atol=1e-12)
        slate = learner.act(state, jnp.asarray(query), jax.random.key(2))
    assert slate.propensity[0] == chances[slate.items[0]]


def test_scores_are_predicted_means(rounds, taught):
    world, learner = rounds(), fastcb(tau=TAU)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 4)
    with jax.enable_x64(True):
        scores = np.asarray(learner.scores(state, jnp.asarray(world.queries[:3])))
    expected = sigmoid((world.queries[:3] @ state.theta.T - state.extra) / TAU)
    np.testing.assert_allclose(scores[:, :4], expected[:, :4], atol=1e-12)
    assert np.isneginf(scores[:, 4]).all()


@pytest.mark.parametrize(("name", "value"), [("gamma", 0.0), ("eta", -0.1), ("tau", 0.0)])
def test_settings_outside_their_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be >=? 0, got {value}"):
        fastcb(**{name: value})
