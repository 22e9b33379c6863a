"""The kernel of a round, interpreted, against the form that defines the rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rank_one
from jaxret.rules import policies, projections
from jaxret.rules.estimators import importance_weighted
from jaxret.simulation.blocked.round_kernel import MOST, simulate_in_pieces
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.types import State, Stream

ITEMS, WIDTH, QUERIES, ROUNDS, PIECE = 40, 8, 30, 40, 8
ABSENT = [3, *range(16, 24)]  # one tool, and a whole piece of them
TAU, ETA, KEY = 0.1, 0.01, jax.random.key(5)
FREE, BALL = projections.none(), projections.ball(radius=0.9)
LEARNERS = {
    "greedy": presets.greedy(tau=TAU, eta=ETA),
    "orag": presets.orag(tau=TAU, eta=ETA),
    "orag, free": presets.orag(tau=TAU, eta=ETA, projection=FREE),
    "clipped, ball": presets.clipped(tau=TAU, eta=ETA, projection=BALL),
    "chosen_only": presets.chosen_only(tau=TAU, eta=ETA),
}


def unit(rng, n):
    rows = rng.standard_normal((n, WIDTH)).astype(np.float32)
    return jnp.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def start(learner: Learner, items: int = ITEMS) -> State:
    theta = unit(np.random.default_rng(0), items)
    return learner.init(theta, ~np.isin(np.arange(items), ABSENT))


@pytest.fixture(scope="module")
def stream():
    """The nearest tool and another, present or absent, are right; no query in the last rounds."""
    rng = np.random.default_rng(1)
    queries = unit(rng, QUERIES)
    near = np.argmax(queries @ start(LEARNERS["greedy"]).theta.T, axis=1)
    other = np.where(rng.random(QUERIES) < 0.5, -1, rng.integers(0, ITEMS, QUERIES))
    order = np.append(rng.integers(0, QUERIES, ROUNDS - 5), [-1] * 5)
    labels = jnp.asarray(np.stack([near, other], axis=1), jnp.int32)
    return Stream(queries=queries, labels=labels, order=jnp.asarray(order, jnp.int32))


def same(found, wanted):
    (state, trace), (oracle, rounds) = found, wanted
    real = slice(0, ROUNDS - 5)
    np.testing.assert_array_equal(trace.item[real], rounds.item[real])
    for name, values in trace._asdict().items():
        expected = getattr(rounds, name)[real]
        np.testing.assert_allclose(values[real], expected, rtol=2e-4, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(state.theta, oracle.theta, atol=2e-5)
    np.testing.assert_array_equal(state.available, oracle.available)
    assert state.t == oracle.t == ROUNDS - 5


def blocked(learner, state, stream):
    return simulate_blocked(learner, state, Environment(), stream, KEY, block=8, tile=4)


def in_pieces(learner, state, stream, piece=PIECE, tile=4):
    sizes = {"block": 8, "tile": tile, "piece": piece}
    return simulate_in_pieces(learner, state, stream, KEY, **sizes, interpret=True)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_kernel_plays_the_rounds_of_the_blocked_form(name, stream):
    learner = LEARNERS[name]
    state = start(learner)
    wanted = blocked(learner, state, stream)
    assert 0.02 < wanted[1].success[: ROUNDS - 5].mean() < 1
    assert not np.isin(wanted[1].item[: ROUNDS - 5], ABSENT).any()
    same(in_pieces(learner, state, stream), wanted)


def test_items_fill_the_last_piece_or_do_not(stream):
    learner = LEARNERS["orag"]
    state = start(learner, items=ITEMS + 1)
    same(in_pieces(learner, state, stream, piece=16), blocked(learner, state, stream))


def test_runs_side_by_side_are_the_runs_alone(stream):
    def run(tau):
        learner = presets.orag(tau=tau, eta=0.1 * tau)
        return in_pieces(learner, start(learner), stream)

    taus = jnp.array([0.05, 0.3])
    together = jax.vmap(run)(taus)
    for place, tau in enumerate(taus.tolist()):
        learner = presets.orag(tau=tau, eta=0.1 * tau)
        alone = blocked(learner, start(learner), stream)
        same(jax.tree.map(lambda x, place=place: x[place], together), alone)


def test_of_equal_items_the_first_is_best_within_a_piece_and_across():
    theta = unit(np.random.default_rng(2), ITEMS).at[:, 0].set(-1.0)
    theta = theta.at[jnp.array([11, 13, 30])].set(jnp.eye(WIDTH)[0])
    learner = presets.greedy(tau=TAU, eta=0.0, projection=FREE)
    stream = Stream(
        queries=jnp.eye(WIDTH)[:1],
        labels=jnp.array([[11]], jnp.int32),
        order=jnp.zeros(8, jnp.int32),
    )
    trace = in_pieces(learner, learner.init(theta), stream, tile=1)[1]
    assert trace.item.tolist() == [11] * 8
    assert trace.success.tolist() == [1] * 8


def test_a_draw_goes_by_the_shares_of_p_within_a_piece_and_over_its_edges():
    """Three tools, two of them on the two sides of an edge, share nearly all of p."""
    shares = {7: 0.2, 8: 0.5, 33: 0.3}
    theta = jnp.zeros((ITEMS, WIDTH)).at[:, 0].set(-3.0)
    for item, share in shares.items():
        theta = theta.at[item, 0].set(TAU * np.log(share))
    learner = presets.orag(tau=TAU, eta=0.0, projection=FREE)
    stream = Stream(
        queries=jnp.eye(WIDTH)[:1],
        labels=jnp.array([[8]], jnp.int32),
        order=jnp.zeros(512, jnp.int32),
    )
    trace = in_pieces(learner, learner.init(theta), stream, tile=1)[1]
    for item, share in shares.items():
        shown = np.asarray(trace.item == item)
        assert abs(shown.mean() - share) < 4 * np.sqrt(share * (1 - share) / 512)
        np.testing.assert_allclose(trace.propensity[shown], share, rtol=1e-4)
    assert set(trace.item.tolist()) == set(shares)
    uniform = jax.vmap(lambda t: jax.random.uniform(jax.random.fold_in(KEY, 2 * t)))
    edges = np.cumsum(list(shares.values()))
    wanted = np.array(list(shares))[np.searchsorted(edges, uniform(jnp.arange(512)))]
    np.testing.assert_array_equal(trace.item, wanted)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"tile": 3, "block": 12}, "tile must be a power of two, got 3"),
        ({"piece": 48}, "piece must be a power of two up to 16384, got 48"),
        ({"piece": 2 * MOST}, "piece must be a power of two up to 16384, got 32768"),
    ],
)
def test_sizes_that_triton_does_not_take_are_refused(sizes, said, stream):
    learner = LEARNERS["greedy"]
    with pytest.raises(ValueError, match=said):
        simulate_in_pieces(learner, start(learner), stream, KEY, **sizes)


def drawn_at_half_the_temperature():
    policy = policies.softmax(temperature=0.5)
    parts = {"estimator": importance_weighted(), "policy": policy}
    return rank_one("sharpened", **parts, tau=TAU, eta=ETA)


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (presets.mapped(map_every=32), "'mapped' has no kernel"),
        (presets.greedy_replayed(), "'greedy_replayed' has no kernel"),
        (presets.orag(k=3), "softmax of k=3"),
        (drawn_at_half_the_temperature(), "got temperature=0.5: use simulate_blocked"),
    ],
)
def test_learners_without_a_kernel_are_refused(learner, said, stream):
    with pytest.raises(ValueError, match=said):
        simulate_in_pieces(learner, start(learner), stream, KEY)


def test_other_numbers_than_float32_are_refused(stream):
    learner = LEARNERS["greedy"]
    state = start(learner)
    state = state._replace(theta=state.theta.astype(jnp.bfloat16))
    with pytest.raises(ValueError, match="theta must be float32, else simulate_blocked, got"):
        simulate_in_pieces(learner, state, stream, KEY)
