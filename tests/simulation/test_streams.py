import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.rules import projections
from jaxret.simulation import streams
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Stream


def test_each_exposure_shows_every_query_once_in_a_new_order_of_the_seed():
    order = streams.exposures(50, 3, seed=1)
    rows = order.reshape(3, 50)
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.tile(np.arange(50), (3, 1)))
    assert len({tuple(row) for row in rows}) == 3
    np.testing.assert_array_equal(streams.exposures(50, 3, seed=1), order)
    assert (streams.exposures(50, 3, seed=2) != order).any()


def test_hops_keep_a_question_together_and_in_order():
    question = np.array([4, 4, 4, 1, 7, 7, 0, 0, 0, 0])
    order = streams.hops(question, 1, seed=0)
    np.testing.assert_array_equal(np.sort(order), np.arange(10))
    seen = question[order]
    assert np.count_nonzero(np.diff(seen)) == 3  # four questions, each contiguous
    within = order[1:][np.diff(seen) == 0] - order[:-1][np.diff(seen) == 0]
    assert (within == 1).all()


def test_hops_shuffle_the_questions_by_seed_and_exposure():
    question = np.repeat(np.arange(20), 2)
    assert len({tuple(question[streams.hops(question, 1, seed)][::2]) for seed in range(5)}) == 5
    first, second = streams.hops(question, 2, seed=0).reshape(2, 40)
    np.testing.assert_array_equal(np.sort(first), np.sort(second))
    assert (first != second).any()
    assert (question[second][::2] == question[second][1::2]).all()


def test_a_question_succeeds_when_all_its_hops_do():
    success = np.array([1, 1, 0, 1, 1, 0, 1])
    question = np.array([5, 5, 2, 2, 9, 3, 3])
    # question 2: 0, 1; question 3: 0, 1; question 5: 1, 1; question 9: 1
    np.testing.assert_array_equal(streams.by_question(success, question), [[0, 0, 1, 1]])


def test_hops_update_after_every_sub_query():  # Algorithm 4
    rng = np.random.default_rng(2)
    question = np.array([0, 0, 0, 1, 2, 2])
    stream = Stream(
        queries=jnp.asarray(rng.normal(size=(6, 4)), jnp.float32),
        labels=jnp.arange(6, dtype=jnp.int32)[:, None],
        order=jnp.asarray(streams.hops(question, 1, seed=0)),
    )
    rule = presets.full_information(tau=1.0, eta=0.5, projection=projections.none())
    theta = rng.normal(size=(6, 4)).astype(np.float32)
    run = jax.jit(lambda s: scan_rounds(rule, s, Environment(), stream, jax.random.key(0)))
    state, trace = jax.device_get(run(rule.init(jnp.asarray(theta))))
    order = np.asarray(stream.order)
    for hop in order:  # hop i has label i; no update waits for the end of the question
        q = np.asarray(stream.queries)[hop]
        p = np.exp(theta @ q) / np.exp(theta @ q).sum()
        theta = theta - 0.5 * np.outer(p - np.eye(6)[hop], q)
    np.testing.assert_allclose(state.theta, theta, rtol=1e-4, atol=1e-5)
    (solved,) = streams.by_question(trace.success, question[order])
    success = dict(zip(order, trace.success, strict=True))
    lowest = [min(success[i] for i in np.flatnonzero(question == n)) for n in range(3)]
    assert solved.tolist() == lowest


def test_empty_streams_and_questions_in_pieces_are_refused():
    for n, times in ((0, 1), (3, 0)):
        with pytest.raises(ValueError, match="must be >= 1, got 0"):
            streams.exposures(n, times, seed=0)
    with pytest.raises(ValueError, match="sort them by question"):
        streams.hops(np.array([0, 1, 0]), 1, seed=0)


def test_rounds_cut_random_and_given_orders(small):
    task, given = small(), np.arange(20)
    whole = streams.stream_orders(task, 2, [0, 1])
    np.testing.assert_array_equal(streams.stream_orders(task, 2, [0, 1], rounds=7), whole[:, :7])
    [cut] = streams.stream_orders(task, 1, [0], order=given, rounds=7)
    np.testing.assert_array_equal(cut, given[:7])
