"""Runs cut into blocks and into parts of a stream, and streams that end with -1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.learners import presets
from jaxret.rules import projections, schedules
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Trace

ITEMS = 40
ORAG = presets.orag(tau=0.2, eta=0.02, projection=projections.none())
TAPERED = presets.orag(
    tau=0.2, eta=0.02, projection=projections.sphere(), schedule=schedules.inverse_sqrt()
)
COMES_AND_GOES = {
    "arrives": np.where(np.arange(ITEMS) % 4 == 1, 30, 0),
    "leaves": np.where(np.arange(ITEMS) % 4 == 2, 50, 100),
}
EVERYTHING = Environment(
    **COMES_AND_GOES, noise_rate=0.1, reranker=simulated_reranker(accuracy=0.8)
)


@pytest.fixture(scope="module")
def blocked(problem):
    """Return a float32 blocked run with all effects, as a function of state and order."""
    catalogue, stream = problem(items=ITEMS)

    @jax.jit
    def run(state, order):
        part = stream._replace(order=order)
        key = jax.random.key(1)
        return simulate_blocked(TAPERED, state, EVERYTHING, part, key, block=16, tile=8)

    return run, TAPERED.init(*catalogue), stream.order


def equal(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_run_cut_at_a_multiple_of_the_block_continues_bit_for_bit(blocked):
    run, start, order = blocked
    whole = run(start, order[:96])
    middle, first = run(start, order[:48])
    end, second = run(middle, order[48:96])
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), first, second)
    equal((end, joined), whole)


def test_rounds_with_order_minus_one_change_nothing(blocked):
    run, start, order = blocked
    short, trace = run(start, order[:48])
    filled = jnp.concatenate([order[:48], jnp.full(48, -1, jnp.int32)])
    state, longer = run(start, filled)
    equal((state, jax.tree.map(lambda x: x[:48], longer)), (short, trace))


def test_the_first_minus_one_ends_the_scan(problem):
    catalogue, stream = problem(items=ITEMS)
    environment, key = Environment(), jax.random.key(1)
    start = ORAG.init(*catalogue)
    run = jax.jit(
        lambda order: scan_rounds(ORAG, start, environment, stream._replace(order=order), key)
    )
    short, trace = run(stream.order[:48])
    for filled in (jnp.full(48, -1, jnp.int32), stream.order[48:].at[0].set(-1)):
        state, longer = run(jnp.concatenate([stream.order[:48], filled]))
        equal((state, jax.tree.map(lambda x: x[:48], longer)), (short, trace))
        equal(jax.tree.map(lambda x: x[48:].any(), longer), Trace._make([False] * len(trace)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block": 20, "tile": 8}, "block must be a multiple of tile=8, got 20"),
        ({"block": 0, "tile": 8}, "block must be a multiple of tile=8, got 0"),
        ({"block": 16, "tile": 0}, "tile must be >= 1, got 0"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(problem, changes, message):
    catalogue, stream = problem()
    with pytest.raises(ValueError, match=message):
        simulate_blocked(
            ORAG, ORAG.init(*catalogue), Environment(), stream, jax.random.key(0), **changes
        )


def test_a_learner_that_is_not_rank_one_is_sent_to_the_plain_scan(problem):
    catalogue, stream = problem()
    other = ORAG._replace(name="other", structure=None)
    with pytest.raises(ValueError, match="'other' has no blocked form: use scan_rounds"):
        simulate_blocked(other, ORAG.init(*catalogue), Environment(), stream, jax.random.key(0))
