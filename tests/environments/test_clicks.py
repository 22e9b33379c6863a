"""Who is clicked: by hand, and by counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.environments.clicks import click_chances, position_biased
from jaxret.types import Slate

SLATE = Slate(items=jnp.array([7, 2, 9, 4]), propensity=jnp.array([0.4, 0.3, 0.2, 0.1]))
#: places 1 / 2^1 .., the third is right: 0.1, 0.05, 1/3, 0.025 of their sum
BY_HAND = np.array([0.1, 0.05, 1 / 3, 0.025]) / (0.1 + 0.05 + 1 / 3 + 0.025)


def test_a_right_tool_attracts_and_a_high_place_is_looked_at():
    got = click_chances(SLATE, jnp.array([9, -1]), bias=1.0, lure=0.1)
    np.testing.assert_allclose(got, BY_HAND, rtol=1e-6)
    level = click_chances(SLATE, jnp.array([-1, -1]), bias=0.0, lure=0.1)
    np.testing.assert_allclose(level, 0.25, rtol=1e-6)


def test_places_are_clicked_as_often_as_that():
    click = position_biased(bias=1.0, lure=0.1)
    keys = jax.random.split(jax.random.key(1), 20_000)
    places = jax.vmap(lambda key: click(key, SLATE, jnp.array([9, -1]), jnp.asarray(0)))(keys)
    often = np.bincount(places, minlength=4) / len(keys)
    assert (np.abs(often - BY_HAND) < 4 * np.sqrt(BY_HAND * (1 - BY_HAND) / len(keys))).all()


def test_a_click_on_one_of_five_is_what_a_learner_learns_from(task):
    """By place: with no lure to speak of, a slate that has a right tool is a success."""
    sure = jr.Environment(reranker=position_biased(lure=1e-9))
    run = jr.simulate(jr.greedy(k=5, eta=0.0), task, environment=sure)
    best = np.argsort(-(task.queries @ task.theta.T), axis=1)[:, :5]
    there = (best[:, :, None] == task.labels[:, None]).any(axis=(1, 2))
    np.testing.assert_array_equal(run.trace.success[0], there[run.order[0]])
    assert 0.1 < there.mean() < 0.99


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"bias": -1.0}, "bias must be >= 0, got -1"), ({"lure": 0.0}, r"lure must be in \(0, 1\]")],
)
def test_users_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        position_biased(**settings)
