"""Availability of items in each round, as computed by `available_at`."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments import availability
from jaxret.environments.environment import Environment, available_at


def by_round(pattern, rounds):
    """Return which items are available in each round, [T, I]."""
    environment = Environment(**pattern._asdict())
    every = jnp.ones(len(pattern.arrives), bool)
    return np.stack([available_at(environment, jnp.asarray(t), every) for t in range(rounds)])


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [
        (availability.always(8), [8] * 6),
        (availability.later(8, 0.5, at=3), [4, 4, 4, 8, 8, 8]),
        (availability.one_by_one(8, 0.5, first=1, last=4), [4, 5, 6, 7, 8, 8]),
        (availability.leaving(8, 0.25, at=2), [8, 8, 6, 6, 6, 6]),
        (availability.away(8, 0.5, leaves=1, back=4), [8, 4, 4, 4, 8, 8]),
    ],
    ids=["always", "later", "one_by_one", "leaving", "away"],
)
def test_the_number_of_available_tools_in_each_round_is_right(pattern, counts):
    assert by_round(pattern, 6).sum(axis=1).tolist() == counts


def test_the_tools_that_leave_are_the_tools_that_return():
    available = by_round(availability.away(9, 0.4, leaves=1, back=3), 4)
    gone = ~available[1]
    assert gone.sum() == 4
    np.testing.assert_array_equal(available[2], ~gone)


def test_the_part_is_drawn_by_the_seed():
    one, same, other = (availability.later(50, 0.5, at=9, seed=seed).arrives for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
