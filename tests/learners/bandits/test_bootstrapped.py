"""Bootstrapped heads: each is `greedy` on weighted rewards; probabilities are shares of heads."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.learners import presets
from jaxret.learners.bandits.bootstrapped import bootstrapped
from jaxret.learners.learner import change_rows
from jaxret.learners.replay import draw_key
from jaxret.rules import projections
from jaxret.testing import quick_jit
from tests.learners.bandits.rounds import compute, make_rounds, taught

SETTINGS = {"tau": 0.3, "eta": 0.05, "heads": 6, "seed": 3}


def test_a_head_learns_from_its_bits_and_theta_from_all():
    """A head of weights 0 and 2 is `greedy` with twice the step size on the rounds of weight 2."""
    world = make_rounds(rounds=30)
    state = taught(bootstrapped(**SETTINGS), world)[-1]
    draw = quick_jit(jax.vmap(lambda t: jax.random.bernoulli(draw_key(3, t), 0.5, (6,))))
    coins = np.asarray(draw(np.arange(30)))
    assert 0.35 < coins.mean() < 0.65
    assert len({tuple(line) for line in coins.T}) == 6
    double = presets.greedy(tau=0.3, eta=0.1)
    for head in range(6):
        mine = coins[:, head]
        own = world._replace(
            **{name: part[mine] for name, part in world._asdict().items() if name != "theta"}
        )
        alone = taught(double, own)[-1]
        np.testing.assert_allclose(state.extra[head], alone.theta, atol=1e-10)
    whole = taught(presets.greedy(tau=0.3, eta=0.05), world)[-1]
    np.testing.assert_allclose(state.theta, whole.theta, atol=1e-10)


def test_from_zero_rows_are_not_projected():
    world = make_rounds(rounds=10)
    state = taught(bootstrapped(**SETTINGS, start="zero"), world)[-1]
    world.theta[:] = 0
    greedy = presets.greedy(tau=0.3, eta=0.05, projection=projections.none())
    np.testing.assert_allclose(state.theta, taught(greedy, world)[-1].theta, atol=1e-12)


def test_a_tool_has_the_probability_of_the_heads_that_show_it():
    world, learner = make_rounds(rounds=60), bootstrapped(**SETTINGS)
    state = taught(learner, world)[-1]._replace(available=np.arange(5) != 2)
    divided, queries = 0, world.queries[:8]
    got = compute(jax.vmap(learner.probabilities, (None, 0)), state, queries)
    for query, probabilities in zip(queries, got, strict=True):
        values = state.extra @ query
        values[:, 2] = -np.inf
        expected = np.bincount(values.argmax(axis=1), minlength=5) / 6
        np.testing.assert_allclose(probabilities, expected, atol=1e-12)
        divided += expected.max() < 1
    assert divided >= 2


def test_rows_that_are_changed_are_changed_in_every_head():
    learner = bootstrapped(**SETTINGS)
    state = taught(learner, make_rounds())[-1]
    state = jax.tree.map(jnp.asarray, state)
    changed = change_rows(learner, state, lambda theta: theta.at[1].set(7.0))
    np.testing.assert_array_equal(changed.theta[1], np.full(6, 7.0))
    np.testing.assert_array_equal(changed.extra[:, 1], np.full((6, 6), 7.0))
    np.testing.assert_array_equal(changed.extra[:, 0], state.extra[:, 0])
