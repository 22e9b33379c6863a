"""`simulate`: the same rounds in every form, for every seed, interrupted or not."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.runtime import progress
from jaxret.simulation import streams
from jaxret.simulation.engine import Simulation
from jaxret.simulation.scan import scan_rounds
from jaxret.types import Stream
from tests.interruption import stopped
from tests.problems import same

SETTINGS = {"tau": 0.1, "eta": 0.02}
ORAG = jr.orag(**SETTINGS)


def scanned(learner, task, *, seeds, exposures=1, environment=None):
    """Return the states and trace of the plain scan, a pair for each seed."""
    environment = environment or jr.Environment()

    @jax.jit
    def run(order, seed):
        stream = Stream(jnp.asarray(task.queries), jnp.asarray(task.labels), order)
        state = learner.init(jnp.asarray(task.theta), task.available)
        return scan_rounds(learner, state, environment, stream, jax.random.key(seed))

    return [run(streams.exposures(len(task), exposures, seed), seed) for seed in seeds]


@pytest.fixture(scope="module")
def coming_and_going(small):
    """Return 13 tools: one is never available; others arrive late, leave, or leave and return."""
    task = small(items=13, available=np.arange(13) != 4)
    ids = np.arange(13)
    arrives = np.select([ids % 5 == 1, ids % 5 == 2], [40, 60], 0)
    leaves = np.select([ids % 5 == 3, ids % 5 == 2], [50, 20], 1000)
    return task, jr.Environment(noise_rate=0.1, arrives=arrives, leaves=leaves)


@pytest.fixture(scope="module")
def scans(coming_and_going):
    task, environment = coming_and_going
    return scanned(ORAG, task, seeds=(3, 1), exposures=2, environment=environment)


@pytest.mark.parametrize("devices", [None, 8])
def test_every_form_runs_the_rounds_of_the_plain_scan(coming_and_going, scans, devices):
    task, environment = coming_and_going
    options = {"exposures": 2, "seeds": (3, 1), "environment": environment, "chunk": 32}
    run = jr.simulate(ORAG, task, devices=devices, **options)
    assert run.form == ("blocked" if devices is None else f"mesh of {devices} devices")
    assert run.states.theta.shape == (2, 13, 8)
    for place, seed in enumerate(run.seeds):
        state, trace = scans[place]
        np.testing.assert_array_equal(run.trace.item[place], trace.item)
        np.testing.assert_array_equal(run.trace.success[place], trace.success)
        np.testing.assert_allclose(run.trace.loss[place], trace.loss, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(run.state(seed).theta, state.theta, atol=1e-5)
        np.testing.assert_array_equal(run.state(seed).available, task.available)
    never = (run.trace.item == 4) | ((run.trace.item % 5 == 1) & (np.arange(120) < 40))
    assert not never.any()


@pytest.mark.parametrize(
    ("learner", "devices"), [(jr.greedy(), 2), (jr.mapped(), None)], ids=["mesh", "scan"]
)
def test_in_every_form_the_reward_is_the_verdict_of_the_judge(task, learner, devices):
    verdicts = np.random.default_rng(0).random((len(task), len(task.theta)))
    judge = jr.judged(verdicts)
    run = jr.simulate(learner, task, exposures=2, environment=judge, devices=devices)
    np.testing.assert_allclose(run.trace.reward, verdicts[run.order, run.trace.item], rtol=1e-6)
    assert set(run.trace.success.ravel().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("devices", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_a_judging_reranker_chooses_the_right_tool_of_a_slate(task, devices):
    right = np.arange(len(task.theta)) == task.labels[:, :1]
    environment = jr.Environment(reranker=jr.judging_reranker(right))
    run = jr.simulate(jr.orag(k=4), task, exposures=2, environment=environment, devices=devices)
    labels, success = task.labels[run.order, 0], run.trace.success
    np.testing.assert_array_equal(run.trace.item == labels, success == 1)
    assert success.mean() > 0.5  # the first tool alone is right in a quarter of the rounds


def test_seeds_are_a_number_or_a_list_and_are_independent(task):
    two = jr.simulate(ORAG, task, seeds=2)
    assert two.seeds == (0, 1)
    same(two.trace, jr.simulate(ORAG, task, seeds=np.int64(2)).trace)
    named = jr.simulate(ORAG, task, seeds=[1, 7])
    assert named.seeds == (1, 7)
    np.testing.assert_array_equal(named.order[0], two.order[1])
    np.testing.assert_array_equal(named.trace.item[0], two.trace.item[1])
    assert (named.trace.item[0] != named.trace.item[1]).any()


def test_a_grid_gives_each_seed_a_setting_of_its_own(task):
    numbers = np.array([[0.1, 0.02], [0.2, 0.001]])
    grid = jr.paired(jr.orag, tau=numbers[:, 0].tolist(), eta=numbers[:, 1].tolist())
    both = jr.simulate(grid, task, seeds=2)
    np.testing.assert_array_equal(both.numbers, numbers)
    np.testing.assert_array_equal(both.settings["eta"], numbers[:, 1])
    for seed, (tau, eta) in enumerate(numbers.tolist()):
        alone = jr.simulate(jr.orag(tau=tau, eta=eta), task, seeds=2)
        np.testing.assert_array_equal(both.trace.item[seed], alone.trace.item[seed])
        np.testing.assert_allclose(both.states.theta[seed], alone.states.theta[seed], atol=1e-6)
    with pytest.raises(ValueError, match="seeds must be 2, as many as there are settings, got 3"):
        jr.simulate(grid, task, seeds=3)
    one = jr.simulate(grid._replace(settings=numbers[:1]), task, seeds=2)
    np.testing.assert_array_equal(one.numbers, numbers[[0, 0]])


def test_a_wrapped_grid_keeps_its_settings():
    grid = jr.grid(jr.greedy, tau=[0.1], eta=[0.02])
    wrapped = grid.wrapped(jr.with_exploration)
    assert wrapped.learner(0) == jr.with_exploration(jr.greedy(tau=0.1, eta=0.02))
    assert wrapped.family == grid.wrapped(jr.with_exploration).family != grid.family


def test_fewer_rounds_are_the_beginning_of_the_whole_stream(task):
    whole = jr.simulate(ORAG, task, exposures=2, seeds=2)
    cut = jr.simulate(ORAG, task, exposures=2, rounds=70, seeds=2)
    np.testing.assert_array_equal(cut.order, whole.order[:, :70])
    np.testing.assert_array_equal(cut.trace.item, whole.trace.item[:, :70])
    assert (np.asarray(cut.states.t) == 70).all()


def changed(**effects):
    return {"environment": jr.Environment(**effects)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": 0}, "seeds must be how many, 1 or more, .*got 0"),
        ({"seeds": []}, "seeds must be"),
        ({"seeds": [1, 1]}, "seeds must be .*different"),
        ({"seeds": [-1]}, "seeds must be"),
        ({"exposures": 0}, "exposures must be a whole number >= 1, got 0"),
        ({"exposures": 1.5}, "exposures must be a whole number >= 1, got 1.5"),
        ({"chunk": 0}, "chunk must be >= 1"),
        ({"devices": 0}, "devices must be None or >= 1, got 0"),
        ({"devices": 99}, "needs 99 devices"),
        (
            {"learner": jr.mapped(), "devices": 2},
            r"'mapped' has no blocked form.*leave devices out",
        ),
        ({"rounds": 0}, "rounds must be None or >= 1, got 0"),
        ({"learner": jr.orag(k=13)}, "k=13 items are asked of a catalogue of 12"),
        (changed(noise_rate=0.7), r"noise_rate must be .*in \[0, 0.5\]"),
        (changed(arrives=np.zeros(3)), r"shape of arrives must be \(12,\) .*, got \(3,\)"),
        (changed(leaves=np.zeros(30)), r"shape of leaves must be \(12,\) .*, got \(30,\)"),
        (
            {"environment": jr.judged(np.zeros((60, 9)))},
            r"shape of verdicts must be \(60, 12\) .*, 9\)",
        ),
        (
            changed(reranker=jr.judging_reranker(np.zeros((9, 12)))),
            r"reranker.verdicts must be \(60, 12\) .*\(9, 12\)",
        ),
    ],
)
def test_settings_out_of_range_are_named(task, arguments, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(**{"learner": jr.greedy(), "task": task} | arguments)


def test_what_is_no_learner_is_named(task):
    with pytest.raises(ValueError, match=r"got the function greedy: call it, greedy\(\)"):
        jr.simulate(jr.greedy, task)
    with pytest.raises(ValueError, match=r"must be a learner, such as jr\.greedy\(\), got str"):
        jr.simulate("greedy", task)


def test_a_task_without_queries_is_refused(task):
    with pytest.raises(ValueError, match="small has no queries, which a live"):
        jr.simulate(jr.greedy(), task.select([]))


@pytest.mark.parametrize(
    "preset",
    [jr.orag, pytest.param(jr.mapped_replayed, marks=pytest.mark.slow)],
    ids=lambda preset: preset.__name__,
)
def test_an_interrupted_run_resumes_bit_for_bit(task, tmp_path, capsys, preset):
    def simulate(resume=None):
        options = {"exposures": 5, "seeds": 2, "chunk": 128, "resume": resume}
        return jr.simulate(preset(**SETTINGS), task, **options)

    straight = simulate()
    stopped(lambda: simulate(tmp_path / "run"))
    assert "the same command resumes" in capsys.readouterr().err
    resumed = simulate(tmp_path / "run")
    same((resumed.trace, resumed.states), (straight.trace, straight.states))
    again = simulate(tmp_path / "run")  # no rounds remain
    same(again.states, straight.states)


RERANKED = """
import jaxret as jr
from tests.problems import make_task

def simulate(folder):
    environment = jr.Environment(reranker=jr.simulated_reranker(accuracy=0.8))
    options = {"exposures": 3, "environment": environment, "chunk": 64, "resume": folder}
    return jr.simulate(jr.orag(tau=0.1, eta=0.02, k=3), make_task(), **options)
"""
STOPPED = """
import signal, sys
from jaxret.simulation.engine import Simulation

step = Simulation.step
def interrupting(*args):
    signal.raise_signal(signal.SIGTERM)
    return step(*args)
Simulation.step = interrupting
simulate(sys.argv[1])
"""


@pytest.mark.slow
def test_another_process_resumes_with_its_own_reranker(tmp_path, monkeypatch):
    """Run are identified by their program, not by the address of a function."""
    names = {
        "JAX_NUM_CPU_DEVICES": str(jax.device_count()),
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    killed = subprocess.run(
        [sys.executable, "-c", RERANKED + STOPPED, str(tmp_path / "cut")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | names,
    )
    assert killed.returncode == 143, killed.stderr
    assert "orag: stopped at step 1" in killed.stderr
    exec(RERANKED, here := {})
    steps, step = [], Simulation.step
    monkeypatch.setattr(Simulation, "step", lambda *args: (steps.append(args), step(*args))[1])
    resumed = here["simulate"](tmp_path / "cut")
    assert len(steps) == 2
    straight = here["simulate"](None)
    assert len(steps) == 2 + 3
    same((resumed.trace, resumed.states), (straight.trace, straight.states))


def test_a_folder_of_another_run_is_refused(coming_and_going, small, tmp_path):
    task, environment = coming_and_going
    later = environment._replace(arrives=environment.arrives + 1)
    first = {"learner": ORAG, "task": task, "environment": environment, "resume": tmp_path}
    first |= {"seeds": (3, 1), "exposures": 2, "chunk": 32}
    jr.simulate(**first)
    changes = (
        {"learner": jr.orag(**SETTINGS | {"tau": 0.2})},
        {"learner": jr.orag(**SETTINGS, projection=jr.sphere(radius=2.0))},
        {"learner": jr.orag(**SETTINGS, schedule=jr.schedules.inverse_sqrt())},
        {"task": small(items=13, seed=1)},
        {"seeds": (3, 2)},
        {"exposures": 1},
        {"environment": later},
    )
    for change in changes:
        with pytest.raises(ValueError, match="holds another simulation"):
            jr.simulate(**(first | change))
    jr.simulate(**first)


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 0), (31.0, 1)])
def test_only_long_runs_show_a_progress_bar(task, capsys, monkeypatch, seconds, lines):
    """Replace the clock by one that advances at each reading."""
    clock = itertools.count(0.0, seconds)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr("tqdm.std.time", lambda: next(clock))
    jr.simulate(jr.greedy(), task)
    error = capsys.readouterr().err
    assert (error.count("60/60"), error.count("\n")) == (lines, lines)
