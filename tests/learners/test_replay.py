"""Blocked replay and blocked preconditioned steps equal the scan up to rounding."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment, simulated_reranker
from jaxret.environments.feedback import Censoring
from jaxret.learners import presets
from jaxret.learners.replay import (
    Replay,
    ReplayBuffer,
    Rewards,
    push_block,
    sample_block,
    with_experience_replay,
)
from jaxret.learners.wrappers import with_exploration, with_preconditioner, with_query_map
from jaxret.rules import preconditioners, projections, query_maps, schedules
from jaxret.simulation.blocked.simulate import has_blocked_form, simulate_blocked
from jaxret.simulation.scan import scan_rounds
from jaxret.testing import quick_jit

ITEMS, ROUNDS = 40, 100
IDS = np.arange(ITEMS)
ENVIRONMENT = Environment(
    noise_rate=0.1,
    reranker=simulated_reranker(accuracy=0.8),
    arrives=jnp.asarray(np.where(IDS % 4 == 1, 30, 0)),
    leaves=jnp.asarray(np.where(IDS % 4 == 2, 50, ROUNDS)),
)
STEPS = {"tau": 0.2, "eta": 0.02}
GREEDY = presets.greedy(
    **STEPS, schedule=schedules.inverse_sqrt()
)  # the schedule counts replayed rounds one round later
FREE = presets.orag(**STEPS, k=2, projection=projections.none())
BY_ROW = with_preconditioner(GREEDY, preconditioners.by_row())
MAPPED = with_query_map(BY_ROW, query_maps.mean_centred(rate=0.5), map_every=16)
RULES = {
    "by row": BY_ROW,
    "by row, mapped": MAPPED,
    "replayed": with_experience_replay(GREEDY, per_round=3, capacity=30),
    "replayed, off the sphere": with_experience_replay(FREE, per_round=2),
    "replayed from less than a block": with_experience_replay(GREEDY, per_round=2, capacity=5),
    "all of it": with_experience_replay(MAPPED, per_round=2, capacity=30),
}


BLOCKED = partial(simulate_blocked, block=16)


@cache
def compiled(how, name):
    key = jax.random.key(5)
    return jax.jit(lambda state, stream: how(RULES[name], state, ENVIRONMENT, stream, key))


def same(got, expected, tolerance=0.0):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", RULES)
def test_blocks_are_the_scan(problem, name):
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        start = jax.jit(RULES[name].init)(*catalogue)
        scanned, blocked = (compiled(how, name)(start, stream) for how in (scan_rounds, BLOCKED))
    np.testing.assert_array_equal(blocked[1].item, scanned[1].item)
    same(blocked, scanned, tolerance=1e-12)


def test_a_run_cut_in_two_equals_the_whole(problem):
    """Exact if the cut is at the end of a block, otherwise up to rounding."""
    run = compiled(BLOCKED, "all of it")
    with jax.enable_x64(True):
        catalogue, stream = problem(items=ITEMS)
        order = np.asarray(stream.order)

        def padded(part):
            order = np.pad(part, (0, ROUNDS - len(part)), constant_values=-1)
            return stream._replace(order=order)

        start = jax.jit(RULES["all of it"].init)(*catalogue)
        whole = run(start, stream)
        for cut in (37, 48):
            middle, first = run(start, padded(order[:cut]))
            last, second = run(middle, padded(order[cut:]))
            parts = zip(first, second, strict=True)
            joined = [np.append(a[:cut], b[: ROUNDS - cut]) for a, b in parts]
            same((last, joined), whole, tolerance=1e-12 if cut % 16 else 0.0)


def test_a_ring_by_hand():
    """C = 3 after two rounds; only the middle three rounds of the block are real."""
    replay = Replay(GREEDY.structure, per_round=50, capacity=3, seed=0)
    past, queries = np.float32([[10], [11], [0]]), np.arange(5, dtype=np.float32)[:, None]
    real, t = np.array([False, True, True, True, False]), np.int32([7, 7, 8, 9, 10])
    sample, push = quick_jit(partial(sample_block, replay)), quick_jit(push_block)
    slots, old = jax.device_get(sample(past, np.int32(2), t, real, queries))
    assert slots.own[1:4].tolist() == [2, 0, 1]
    rings = {1: [10.0, 11.0, 1.0], 2: [2.0, 11.0, 1.0], 3: [2.0, 3.0, 1.0]}
    for place, ring in rings.items():
        assert set(slots.sampled[place].tolist()) == {0, 1, 2}
        np.testing.assert_array_equal(old[place, :, 0], np.array(ring)[slots.sampled[place]])
    bits = Rewards(*np.zeros((3, 3), np.float32))
    after, count = push(ReplayBuffer(past, *bits), bits, np.int32(2), real, queries)
    assert (after.query[:, 0].tolist(), int(count)) == (rings[3], 5)


def test_which_learners_have_a_blocked_form():
    silent = Environment(censoring=Censoring(after_success=0.5, after_failure=0.5))
    for rule in RULES.values():
        assert has_blocked_form(rule, Environment())
        assert has_blocked_form(rule, silent) == (not isinstance(rule.structure, Replay))
    exploring = with_exploration(RULES["replayed"], 0.1)  # a wrapper around replay
    for rule in (exploring, presets.whitened(), presets.mapped(), presets.mapped_replayed()):
        assert not has_blocked_form(rule, Environment())
