"""The main job as two processes, one of which is killed: the results of a single process."""

import time

import numpy as np
import pytest

from experiments import orag
from jaxret.runtime.tracking import read_results
from tests import together
from tests.experiments.configs import config_of, in_world

SMALL = [
    "exposures=2",
    "seeds=3",
    "chunk=128",
    "learner=[greedy,mapped_replayed]",
    "learners.greedy.tau=[0.04]",
    "learners.greedy.eta_over_tau=[0.1,0.3]",
    "learners.mapped_replayed.tau=[0.04]",
    "learners.mapped_replayed.eta_over_tau=[0.03]",
    "tracking=files",
]


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    orag.main(config_of("orag", *SMALL, *in_world(world, folder)))
    return folder


def test_if_a_process_is_killed_all_end_and_the_same_command_resumes(finished, world, tmp_path):
    """Kill the process that writes the results; `tests.runtime` kills another one of four."""
    run, steps = tmp_path / "run", tmp_path / "run" / "steps"
    job = ["experiments.orag", *SMALL, *in_world(world, run), "distributed=auto"]
    with together.started(job, tmp_path / "said", 2) as processes:
        until = time.monotonic() + 600
        while not (steps / "greedy.npz").exists() and time.monotonic() < until:
            assert all(one.poll() is None for one in processes), processes.said()
            time.sleep(0.02)
        processes[0].kill()
        assert all(processes.end(60)), processes.said()
    assert not (run / "results.json").exists()
    done = {path.name: path.stat().st_mtime_ns for path in steps.iterdir()}
    assert "greedy.npz" in done

    first, second = together.run(job, tmp_path / "said", 2)
    names = {path.name for path in (finished / "steps").iterdir()}
    assert names == {path.name for path in steps.iterdir()}
    for name in names:
        with np.load(steps / name) as a, np.load(finished / "steps" / name) as b:
            for field in b:
                np.testing.assert_array_equal(a[field], b[field], err_msg=f"{name}: {field}")
    assert read_results(run) == read_results(finished)
    assert {name: (steps / name).stat().st_mtime_ns for name in done} == done  # files are unchanged
    assert "results and figures" in first
    assert "results and figures" not in second
    assert (run / "accuracy.png").stat().st_size > 10_000
