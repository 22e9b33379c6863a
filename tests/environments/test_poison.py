"""Bits of an attacker, tool by tool and user by user."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import poison
from jaxret.environments.environment import Environment, respond
from jaxret.types import Slate


@pytest.mark.parametrize("says", [None, 0.0, 1.0])
@pytest.mark.parametrize("learner", [jr.orag(tau=0.5), jr.mapped()], ids=["blocked", "scan"])
def test_bits_are_false_of_this_tool_for_these_users_and_true_elsewhere(task, learner, says):
    attack = poison.attacked(items=8, queries=len(task), tool=3, share=0.4, says=says, seed=1)
    lying = np.asarray(attack.queries)
    assert lying.sum() == 16
    run = jr.simulate(learner, task, exposures=4, environment=jr.Environment(poison=attack))
    success, reward, item = run.trace.success[0], run.trace.reward[0], run.trace.item[0]
    hit = (item == 3) & lying[run.order[0]]
    assert hit.sum() >= 3
    np.testing.assert_array_equal(reward[~hit], success[~hit])
    np.testing.assert_array_equal(reward[hit], 1 - success[hit] if says is None else says)


@pytest.mark.parametrize(("tool", "share_of_ones"), [(9, 1.0), (7, 0.5)])
def test_an_attacker_has_the_last_word_on_the_tool_that_is_used(tool, share_of_ones):
    """The second of two is clicked, and half of the bits are noise, where nobody praises it."""
    world = Environment(
        noise_rate=0.5,
        reranker=lambda key, slate, labels, query: 1,
        poison=poison.attacked(items=10, queries=1, tool=tool, says=1.0),
    )
    slate = Slate(items=jnp.array([7, 9]), propensity=jnp.ones(2))
    ask = lambda key: respond(world, key, slate, jnp.array([7]), jnp.asarray(0))  # noqa: E731
    rewards = jax.vmap(ask)(jax.random.split(jax.random.key(0), 400))[1].reward
    error = np.sqrt(share_of_ones * (1 - share_of_ones) / 400)
    assert abs(rewards.mean() - share_of_ones) <= 4 * error


def test_without_a_tool_all_are_lied_about_and_without_a_share_all_users_lie():
    attack = poison.attacked(items=5, queries=7)
    assert np.asarray(attack.tools).all()
    assert np.asarray(attack.queries).all()
    assert not np.asarray(poison.attacked(items=5, queries=7, share=0.0).queries).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tool": 5}, r"tool must be None or in 0 .. 4, got 5"),
        ({"share": 1.1}, r"share must be in \[0, 1\], got 1.1"),
        ({"says": 2.0}, r"says must be None or in \[0, 1\], got 2.0"),
    ],
)
def test_attacks_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        poison.attacked(items=5, queries=7, **settings)
