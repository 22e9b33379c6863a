"""The main job as several processes: equal results, also after one process is killed."""

import time

import numpy as np
import pytest

from jaxret.runtime.tracking import read_results
from tests import together

SEEDS, CHUNK = 3, 128
SMALL = [
    "exposures=2",
    f"seeds={SEEDS}",
    f"chunk={CHUNK}",
    "learner=[frozen,greedy,mapped_replayed]",
    "learners.greedy.tau=[0.04]",
    "learners.greedy.eta_over_tau=[0.1,0.3]",
    "learners.mapped_replayed.tau=[0.04]",
    "learners.mapped_replayed.eta_over_tau=[0.03]",
    "tracking=files",
]


@pytest.fixture(scope="module")
def command(world):
    """Returns the command that runs the job in a folder."""

    def of(folder, *overrides):
        place = f"dataset.path={world / 'data'}", f"encoder.path={world / 'encoder'}"
        more = ["dataset=jsonl", *place, f"cache={world / 'cache'}", f"hydra.run.dir={folder}"]
        return ["experiments.orag", *SMALL, *more, *overrides]

    return of


@pytest.fixture(scope="module")
def finished(command, tmp_path_factory):
    """Runs the job as one process; returns its folder."""
    folder = tmp_path_factory.mktemp("one")
    together.run(command(folder), folder / "said", 1, devices=SEEDS)
    return folder


def assert_same_steps(folder, expected):
    names = sorted(path.name for path in (expected / "steps").iterdir())
    assert names == sorted(path.name for path in (folder / "steps").iterdir())
    for name in names:
        with np.load(folder / "steps" / name) as a, np.load(expected / "steps" / name) as b:
            for field in b:
                np.testing.assert_array_equal(a[field], b[field], err_msg=f"{name}: {field}")
    assert read_results(folder) == read_results(expected)


def test_several_processes_find_what_one_finds(finished, command, tmp_path):
    """Four processes; two are compared after one of them was killed."""
    first, *others = together.run(
        command(tmp_path / "run", "distributed=auto"), tmp_path / "said", 4
    )
    assert_same_steps(tmp_path / "run", finished)
    assert "results and figures" in first
    assert not any("results and figures" in said for said in others)
    assert (tmp_path / "run" / "accuracy.png").stat().st_size > 10_000
    again = together.run(command(tmp_path / "run"), tmp_path / "said", 1)  # only reads the results
    assert "finished before" in again[0]


def test_when_one_is_killed_all_end_and_the_same_command_goes_on(finished, command, tmp_path):
    """Kills the process that writes the results; `tests.runtime` kills others."""
    job = command(tmp_path / "run", "distributed=auto")
    with together.started(job, tmp_path / "said", 2) as processes:
        steps = tmp_path / "run" / "steps"
        until = time.monotonic() + 600
        while not (steps / "greedy.npz").exists() and time.monotonic() < until:
            assert all(one.poll() is None for one in processes), processes.said()
            time.sleep(0.02)
        processes[0].kill()
        assert all(processes.end(60)), processes.said()
    assert not (tmp_path / "run" / "results.json").exists()
    done = {path.name: path.stat().st_mtime_ns for path in steps.iterdir()}
    assert "greedy.npz" in done

    together.run(job, tmp_path / "said", 2)
    assert_same_steps(tmp_path / "run", finished)
    assert {name: (steps / name).stat().st_mtime_ns for name in done} == done  # files are unchanged
