"""Learners that differ in a branch: one program, and each does what it does alone."""

import numpy as np
import pytest

import jaxret as jr
from jaxret.environments import interventions
from jaxret.environments.environment import Environment
from jaxret.learners.specs import learner_grid
from jaxret.rules import projections, schedules
from jaxret.simulation import streams
from jaxret.simulation.branches import make_simulations
from jaxret.simulation.engine import Simulation

STILL = {"policy": "greedy", "estimator": "none", "projection": "sphere", "schedule": "constant"}
STILL |= {"tau": 0.05, "eta_over_tau": 0.0}
SLOWER = schedules.inverse_sqrt()
ALIKE = [
    learner_grid("frozen", STILL),
    jr.grid(jr.orag, tau=[0.05, 0.1], eta=[0.001, 0.01]),
    jr.grid(jr.greedy, tau=[0.05], eta=[0.02]),
    jr.grid(jr.banditron, tau=[0.05], eta=[0.01]),
    jr.grid(jr.greedy, schedule=SLOWER, tau=[0.05], eta=[0.05]),
    jr.grid(lambda tau, eta: jr.orag(tau=2 * tau, eta=3 * eta), tau=[0.05], eta=[0.02]),
]
FROM_ZERO = jr.grid(jr.banditron, start="zero", tau=[0.05], eta=[0.01])
FREE = jr.grid(jr.greedy, projection=projections.none(), tau=[0.05], eta=[0.02])
OF_OTHER_FORMS = [
    jr.grid(jr.full_information, tau=[0.05], eta=[0.01]),
    jr.grid(jr.mapped, tau=[0.05], eta=[0.01]),
    jr.grid(jr.greedy, k=2, tau=[0.05], eta=[0.01]),
    jr.grid(jr.orag, k=2, tau=[0.05], eta=[0.01]),
    FREE,
    jr.grid(jr.squarecb, eta=[0.01]),
]
SEEDS = (3, 4)
ORDERS = np.stack([streams.exposures(30, 2, seed) for seed in SEEDS])


@pytest.fixture(scope="module")
def task() -> jr.Task:
    """Thirty queries with one right tool or two among twelve."""
    rng = np.random.default_rng(0)
    theta, queries = (rng.normal(size=(n, 8)).astype(np.float32) for n in (12, 30))
    theta, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (theta, queries))
    labels = np.stack([rng.permutation(12)[:2] for _ in range(30)])
    labels[::3, 1] = -1
    return jr.Task.from_arrays(theta, queries, labels)


def streamed(simulation, grid, **more):
    """What a simulation does with the last setting of a grid."""
    return simulation.run(simulation.setting(*grid.settings[-1]), ORDERS, **more)


@pytest.mark.parametrize("world", [Environment(), Environment(delay=interventions.fixed_delay(3))])
@pytest.mark.parametrize("grids", [ALIKE, [FREE, FROM_ZERO]], ids=["from documents", "from zero"])
def test_each_does_what_it_does_alone(task, world, grids):
    shown = []
    for grid, simulation in zip(
        grids, make_simulations(grids, task, world, seeds=SEEDS, rounds=60), strict=True
    ):
        alone = Simulation(grid.make, task, world, seeds=SEEDS, example=grid.settings[0])
        assert simulation.how == alone.how
        (state, trace), (own, known) = streamed(simulation, grid), streamed(alone, grid)
        np.testing.assert_array_equal(trace.item, known.item)
        for found, want in ((trace.loss, known.loss), (state.theta, own.theta)):
            np.testing.assert_allclose(found, want, atol=1e-5, err_msg=grid.name)
        shown.append(trace.item)
    different = [(a != b).any() for i, a in enumerate(shown) for b in shown[:i]]
    assert all(different), "two learners that do the same test nothing"


def test_learners_of_one_form_are_compiled_once(task):
    simulations = make_simulations(ALIKE, task, seeds=SEEDS, rounds=60)
    for grid, simulation in zip(ALIKE, simulations, strict=True):
        streamed(simulation, grid)
    programs = {id(simulation._step): simulation._step for simulation in simulations}
    assert [program._cache_size() for program in programs.values()] == [1]


def test_learners_of_other_forms_have_a_program_each(task):
    grids = [*ALIKE, *OF_OTHER_FORMS]
    simulations = make_simulations(grids, task, seeds=SEEDS, rounds=60)
    assert len({id(simulation._step) for simulation in simulations}) == 1 + len(OF_OTHER_FORMS)
    oracle = Simulation(OF_OTHER_FORMS[0].make, task, seeds=SEEDS, example=(0.05, 0.01))
    place = grids.index(OF_OTHER_FORMS[0])
    found, known = (
        streamed(simulation, OF_OTHER_FORMS[0]) for simulation in (simulations[place], oracle)
    )
    np.testing.assert_array_equal(found[1].item, known[1].item)


def test_long_streams_have_a_program_for_each_learner(task):
    simulations = make_simulations(ALIKE, task, seeds=SEEDS, rounds=60, chunk=32)
    assert len({id(simulation._step) for simulation in simulations}) == len(ALIKE)
    found = streamed(simulations[2], ALIKE[2])[1]
    alone = Simulation(ALIKE[2].make, task, seeds=SEEDS, example=(0.05, 0.02), chunk=32)
    np.testing.assert_array_equal(found.loss, streamed(alone, ALIKE[2])[1].loss)


def test_the_run_of_one_is_not_taken_for_that_of_another(task, tmp_path):
    greedy, slower = ALIKE[2], ALIKE[4]
    one, other = make_simulations([greedy, slower], task, seeds=SEEDS, rounds=60)
    setting = one.setting(*greedy.settings[0])
    assert one.fingerprint(setting, ORDERS) == one.fingerprint(setting, ORDERS)
    assert one.fingerprint(setting, ORDERS) != other.fingerprint(setting, ORDERS)
