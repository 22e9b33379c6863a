"""The kernel of a tile of rounds, interpreted, against the form that defines the rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.environments.environment import Environment
from jaxret.learners import presets
from jaxret.learners.bandits.perceptrons import banditron
from jaxret.learners.learner import Learner
from jaxret.rules import projections
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.simulation.blocked.tile_kernel import LARGEST, simulate_tiled
from jaxret.types import State, Stream

ITEMS, WIDTH, QUERIES, ROUNDS, ABSENT = 50, 8, 40, 60, 3  # 50 items are padded to 64
TAU, ETA, KEY = 0.1, 0.01, jax.random.key(5)
FREE, BALL = projections.none(), projections.ball(radius=0.9)
LEARNERS = {
    "greedy": presets.greedy(tau=TAU, eta=ETA),
    "orag": presets.orag(tau=TAU, eta=ETA),
    "orag, free": presets.orag(tau=TAU, eta=ETA, projection=FREE),
    "clipped, ball": presets.clipped(tau=TAU, eta=ETA, projection=BALL),
    "chosen_only": presets.chosen_only(tau=TAU, eta=ETA),
    "paper_sgd": presets.paper_sgd(tau=TAU, eta=ETA),
}


def unit(rng, n):
    rows = rng.standard_normal((n, WIDTH)).astype(np.float32)
    return jnp.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def start(learner: Learner) -> State:
    theta = unit(np.random.default_rng(0), ITEMS)
    return learner.init(theta, jnp.arange(ITEMS) != ABSENT)


@pytest.fixture(scope="module")
def stream():
    """The nearest item and another are right; five rounds without a query at the end."""
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


@pytest.mark.parametrize("name", LEARNERS)
def test_the_kernel_plays_the_rounds_of_the_blocked_form(name, stream):
    learner = LEARNERS[name]
    state = start(learner)
    wanted = simulate_blocked(learner, state, Environment(), stream, KEY, block=16, tile=4)
    assert 0.02 < wanted[1].success[: ROUNDS - 5].mean() < 1
    assert ABSENT not in wanted[1].item[: ROUNDS - 5]
    same(simulate_tiled(learner, state, stream, KEY, block=16, tile=4, interpret=True), wanted)


def test_runs_side_by_side_are_the_runs_alone(stream):
    taus = jnp.array([0.05, 0.1, 0.3])

    def run(tau):
        learner = presets.orag(tau=tau, eta=0.1 * tau)
        state = start(learner)
        return simulate_tiled(learner, state, stream, KEY, block=16, tile=8, interpret=True)

    together = jax.vmap(run)(taus)
    for place, tau in enumerate(taus.tolist()):
        learner = presets.orag(tau=tau, eta=0.1 * tau)
        alone = simulate_blocked(learner, start(learner), Environment(), stream, KEY, block=16)
        same(jax.tree.map(lambda x, place=place: x[place], together), alone)


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (presets.mapped(map_every=32), "'mapped' has no kernel"),
        (presets.full_information(), "'full_information' has no kernel"),
        (presets.orag(k=3), "softmax of k=3"),
        (banditron(), "got epsilon_greedy of k=1"),
    ],
)
def test_learners_without_a_kernel_are_refused(learner, said, stream):
    with pytest.raises(ValueError, match=said):
        simulate_tiled(learner, start(learner), stream, KEY)


def test_a_catalogue_that_does_not_fit_is_refused(stream):
    learner = presets.greedy()
    large = learner.init(jnp.zeros((LARGEST + 1, WIDTH)))
    with pytest.raises(ValueError, match="at most 16384, else simulate_blocked"):
        simulate_tiled(learner, large, stream, KEY)
