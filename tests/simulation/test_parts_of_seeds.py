"""Units of work whose seeds have parts of the queries of their own."""

import numpy as np
import pytest

from jaxret.learners.grid import LearnerGrid
from jaxret.learners.presets import greedy
from jaxret.simulation.choosing import choose, tune
from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import Ranker, catalogues
from jaxret.simulation.recording import record
from jaxret.simulation.streams import orders
from jaxret.task import Task

GRID = LearnerGrid(
    "greedy", lambda tau, eta: greedy(tau=tau, eta=eta), np.array([[0.05, 0.0], [0.05, 0.02]])
)


def at_once(*, chunks, start, step, finish, **_):
    """A unit that nothing interrupts."""
    state = start()
    for number in range(chunks):
        state = step(state, number)
    return finish(state)


@pytest.fixture(scope="module")
def world():
    """A task, two masks of 9 and 6 queries, and a simulation of two seeds."""
    generator = np.random.default_rng(3)
    theta, queries = (generator.normal(size=(n, 4)).astype(np.float32) for n in (6, 12))
    labels = generator.integers(0, 6, (12, 1))
    rows = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (theta, queries)]
    task = Task.from_arrays(*rows, labels)
    masks = np.zeros((2, 12), bool)
    masks[0, :9], masks[1, 6:] = True, True
    simulation = Simulation(GRID.make, task, seeds=(5, 8), example=(1.0, 0.0), chunk=8)
    return task, masks, simulation


def test_a_seed_whose_stream_is_shorter_runs_as_if_it_were_alone(world):
    task, masks, simulation = world
    order = orders(masks, 2, (5, 8))
    assert order.shape == (2, 18)
    np.testing.assert_array_equal(order[1, 12:], -1)
    setting = simulation.setting(0.05, 0.02)
    found = record(at_once, simulation, setting, order, lambda states: {"theta": states.theta})
    assert np.isnan(found["success"][1, 12:]).all()
    assert np.isnan(found["loss"][1, 12:]).all()
    np.testing.assert_array_equal(found["item"][1, 12:], -1)

    alone = Simulation(GRID.make, task, seeds=(8,), example=(1.0, 0.0), chunk=8)
    short = orders(masks[1], 2, (8,))
    np.testing.assert_array_equal(short[0], order[1, :12])
    one = record(
        at_once, alone, alone.setting(0.05, 0.02), short, lambda states: {"theta": states.theta}
    )
    np.testing.assert_array_equal(one["success"][0], found["success"][1, :12])
    np.testing.assert_array_equal(one["theta"][0], found["theta"][1])


def test_each_seed_is_ranked_by_its_own_queries(world):
    task, masks, _ = world
    ranker = Ranker(task, k=2)
    both = ranker(catalogues(task.theta, task.theta[::-1]), masks)
    np.testing.assert_array_equal(both[:1], ranker(catalogues(task.theta), masks[0]))
    np.testing.assert_array_equal(both[1:], ranker(catalogues(task.theta[::-1]), masks[1]))
    each = ranker.each(catalogues(task.theta, task.theta), masks)
    np.testing.assert_array_equal(np.isnan(each).sum(axis=-1), [[0] * 4, [3] * 4])


def made_up(served):
    """Ranks validation queries so that setting g serves seed s by ``served[g][s]``."""
    done = []

    def ranker(states, part, scores):
        done.append(part)
        return np.repeat(np.array(served[len(done) - 1])[:, None], 4, axis=1)

    return ranker


def test_seeds_with_validation_parts_of_their_own_choose_each_for_itself(world):
    _, masks, simulation = world
    order = orders(~masks, 1, (5, 8))  # no validation query is streamed
    ranker = made_up([[0.9, 0.1], [0.2, 0.4]])
    found = tune(at_once, GRID, simulation, ranker, order, validation=masks)
    np.testing.assert_array_equal(found["best"], [0, 1])
    np.testing.assert_array_equal(found["setting"], GRID.settings)


def test_seeds_that_share_a_validation_part_choose_together(world):
    _, masks, simulation = world
    order = orders(~masks[0], 1, (5, 8))
    ranker = made_up([[0.9, 0.1], [0.2, 0.4]])
    setting = choose(at_once, GRID, simulation, ranker, order, validation=masks[0])
    np.testing.assert_array_equal(setting, GRID.settings[[0, 0]])


def test_success_of_validation_queries_counts_by_seed_and_padding_does_not(world):
    task, masks, simulation = world
    order = orders(masks, 1, (5, 8))
    flat = made_up([[0.5, 0.5], [0.5, 0.5]])
    found = tune(at_once, GRID, simulation, flat, order, validation=masks)
    right = task.labels[:, 0] == (task.queries @ task.theta.T).argmax(axis=1)
    np.testing.assert_allclose(found["online"][0], [right[:9].mean(), right[6:].mean()])
    np.testing.assert_allclose(found["success"], found["online"])  # all that is streamed validates


def test_a_setting_that_is_alone_is_chosen_without_a_stream(world):
    def never(**_):
        raise AssertionError("nothing is to be run")

    _, masks, simulation = world
    alone = GRID._replace(settings=GRID.settings[1:])
    setting = choose(never, alone, simulation, None, np.zeros((2, 3), int), validation=masks)
    np.testing.assert_array_equal(setting, [[0.05, 0.02]] * 2)
