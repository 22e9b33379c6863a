"""A second call compiles nothing, since numbers of learners and environments are data."""

import inspect
import time
from collections.abc import Callable

import jax
import numpy as np
import pytest
from jax._src import monitoring

import jaxret as jr
from jaxret.environments.environment import Environment
from jaxret.learners.registry import factories
from jaxret.simulation.engine import Simulation
from jaxret.simulation.scan import scan_rounds

COMPILED = []


def _count(name: str, seconds: float, **_) -> None:
    if "backend_compile" in name:
        COMPILED.append(name)


monitoring.register_event_duration_secs_listener(_count)


def programs(call: Callable[[], object]) -> int:
    before = len(COMPILED)
    call()
    return len(COMPILED) - before


@pytest.fixture(scope="module")
def first(task):
    """Run the simulation from which the other calls differ in learner, settings or seeds."""
    run = jr.simulate(jr.greedy(), task, exposures=2, seeds=2)
    jr.evaluate(run, task)
    return run


@pytest.mark.parametrize(
    ("learner", "seeds"),
    [
        (jr.greedy(), 2),
        (jr.greedy(tau=0.07, eta=0.001), 2),
        (jr.greedy(), [4, 11]),
        (jr.greedy()._replace(name="mine"), 2),
    ],
    ids=["the same", "other numbers", "other seeds", "another name"],
)
def test_a_second_call_compiles_nothing(first, task, learner, seeds):
    assert programs(lambda: jr.simulate(learner, task, exposures=2, seeds=seeds)) == 0


WRAPPERS = [
    lambda inner: jr.with_memory(inner, capacity=16),
    lambda inner: jr.guarded(inner, 50, delta=0.1),
    lambda inner: jr.abstaining(jr.with_confidence(inner), at_least=0.2),
    lambda inner: jr.with_exploration(jr.with_memory(inner, capacity=16), 0.1),
]


def test_a_second_call_of_a_wrapped_learner_compiles_nothing(task):
    """Learners of equal families share a program, which is run for one of them."""
    learners = jr.greedy(), jr.greedy(tau=0.07, eta=0.001)
    for wrap in WRAPPERS:
        families = {jr.traced(wrap(inner))[0] for inner in learners}
        assert len(families) == 1
        assert wrap(jr.greedy()) is wrap(jr.greedy())
        changed = wrap(jr.greedy())._replace(act=jr.frozen().act)
        assert jr.traced(changed)[0] not in families
    jr.simulate(wrap(jr.greedy()), task)
    for inner in learners:
        assert programs(lambda inner=inner: jr.simulate(wrap(inner), task)) == 0


def test_wrapped_learners_with_other_settings_are_other_programs():
    families = {jr.traced(jr.guarded(jr.greedy(), budget))[0] for budget in (50, 60, 60.0, 50)}
    assert len(families) == 3  # 60 and 60.0 are settings of two types


def test_the_counter_counts_a_compiled_program():
    assert programs(lambda: jax.jit(lambda: 1)()) > 0


def test_evaluating_another_run_compiles_nothing(first, task):
    other = jr.simulate(jr.greedy(tau=0.01), task, exposures=2, seeds=2)
    assert programs(lambda: jr.evaluate(other, task)) == 0


def test_the_numbers_of_a_custom_rule_are_data(task):
    def rule(tau):
        estimator = jr.estimators.clipped(floor=0.2)
        return jr.rank_one(
            "mine", estimator=estimator, policy=jr.policies.softmax(), tau=tau, eta=0.01
        )

    jr.simulate(rule(0.1), task)
    assert programs(lambda: jr.simulate(rule(0.2), task)) == 0
    replayed = (jr.traced(jr.with_experience_replay(rule(tau)))[0] for tau in (0.1, 0.2))
    assert len(set(replayed)) == 1  # equal families share a program


def test_the_noise_of_an_environment_is_data(first, task):
    jr.simulate(jr.greedy(), task, environment=jr.label_noise(0.1))
    call = lambda: jr.simulate(jr.greedy(), task, environment=jr.label_noise(0.3))  # noqa: E731
    assert programs(call) == 0


def test_a_sweep_and_the_run_it_chooses_share_a_program(task):
    settings = {"exposures": 2, "seeds": 2}
    swept = jr.sweep(jr.orag, task, tau=[0.1, 0.2], eta=[0.01], **settings)
    best = swept.best(on=~task.parts(seeds=2).training)
    assert programs(lambda: jr.simulate(best, task, **settings)) == 0


def test_the_same_settings_give_the_same_learner():
    for name, make in factories().items():
        assert make() is make(), name


@pytest.mark.slow
def test_a_second_simulation_on_deskbank_takes_little_longer_than_its_rounds(
    monkeypatch, optimised
):
    task, inner, rounds = jr.load_task("deskbank"), Simulation.step, []

    def step(*args):
        begin = time.perf_counter()
        result = jax.block_until_ready(inner(*args))
        rounds.append(time.perf_counter() - begin)
        return result

    monkeypatch.setattr(Simulation, "step", step)
    ratios = []
    for tau in np.linspace(0.01, 0.1, 9):
        rounds.clear()
        begin = time.perf_counter()
        jr.simulate(jr.greedy(tau=float(tau)), task, exposures=5)
        ratios.append((time.perf_counter() - begin) / sum(rounds))
    assert np.median(ratios) <= 1.2, ratios


@pytest.mark.slow
@pytest.mark.parametrize("name", factories())
def test_the_numbers_of_every_preset_are_data(problem, name):
    """Equal families share a program, which is traced with numbers that are data."""
    family, numbers = jr.traced(factories()[name]())
    if not numbers:
        pytest.skip("this learner has no numeric settings")
    parameters = inspect.signature(factories()[name]).parameters.values()
    first = next(one.name for one in parameters if isinstance(one.default, float))
    other, others = jr.traced(factories()[name](**{first: numbers[0] * 0.9}))
    assert (other, hash(other)) == (family, hash(family))
    assert others != numbers
    catalogue, stream = problem(times=1)

    def run(*numbers):
        learner = family(*numbers)
        state = learner.init(catalogue.theta)
        return scan_rounds(learner, state, Environment(), stream, jax.random.key(0))

    jax.eval_shape(run, *numbers)
