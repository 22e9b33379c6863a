"""What the field's learners share: where they begin, and that settings may be data."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.learners import bandits
from jaxret.learners.names import REGISTRY
from jaxret.testing import quick_jit
from jaxret.types import Choice, Feedback

NAMES = bandits.__all__


def learner(name, **settings):
    return REGISTRY[name](**settings)


@pytest.mark.parametrize("name", NAMES)
def test_with_no_data_it_ranks_as_static_retrieval_does(rounds, name):
    world = rounds(items=30, width=8)
    rule = learner(name)
    state = rule.init(jnp.asarray(world.theta, jnp.float32))
    order = np.argsort(-np.asarray(rule.scores(state, jnp.asarray(world.queries, jnp.float32))))
    np.testing.assert_array_equal(order, np.argsort(-world.queries @ world.theta.T))


@pytest.mark.parametrize("name", NAMES)
def test_from_zero_it_ranks_nothing(rounds, name):
    world = rounds()
    rule = learner(name, start="zero")
    state = rule.init(jnp.asarray(world.theta, jnp.float32))
    scores = np.asarray(rule.scores(state, jnp.asarray(world.queries, jnp.float32)))
    np.testing.assert_array_equal(scores, np.full_like(scores, scores[0, 0]))


@pytest.mark.parametrize("name", NAMES)
def test_another_start_is_refused(name):
    with pytest.raises(ValueError, match=r"start must be 'document' or 'zero', got warm"):
        learner(name, start="warm")


@pytest.mark.parametrize("name", NAMES)
def test_every_number_may_be_data_of_the_program(rounds, name):
    """Two settings side by side; the second is what it is alone, as a constant."""
    world = jax.tree.map(jnp.asarray, rounds(rounds=4))
    parameters = inspect.signature(REGISTRY[name]).parameters.values()
    floats = {p.name: p.default for p in parameters if isinstance(p.default, float)}
    assert len(floats) >= 2
    factors = np.array([0.7, 0.9])  # to another power for each number: some rules read a ratio

    def scores(*numbers):
        rule = learner(name, **dict(zip(floats, numbers, strict=True)))
        state = rule.init(world.theta)
        for t in range(4):
            slate = rule.act(state, world.queries[t], jax.random.key(t))
            choice = Choice(world.items[t].astype(jnp.int32), world.propensities[t])
            state = rule.update(state, world.queries[t], choice, Feedback(world.rewards[t]))
        return rule.scores(state, world.queries), slate.items

    values = [value * factors**n for n, value in enumerate(floats.values(), start=1)]
    together = quick_jit(jax.vmap(scores))(*(jnp.asarray(x, jnp.float32) for x in values))
    numbers = [float(x[1]) for x in values]
    alone = quick_jit(lambda: scores(*numbers))()
    np.testing.assert_allclose(together[0][1], alone[0], rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(together[1][1], alone[1])
    assert np.abs(together[0][0] - together[0][1]).max() > 1e-6  # the numbers are read
