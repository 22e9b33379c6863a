"""Sweeps in worker processes: the same results as one process, also after an interruption."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib import metadata

import jax
import pytest

from experiments import orag
from experiments.collect import collect
from experiments.common.config import fingerprint
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, in_world
from tests.experiments.processes import ROOT

pytestmark = pytest.mark.slow
LAUNCHERS = {
    "joblib": ("hydra-joblib-launcher", ["hydra.launcher.n_jobs=2"]),
    "submitit_local": ("hydra-submitit-launcher", []),
}
SMALL = ["exposures=1", "seeds=2", "chunk=128", "tracking=files"]
SMALL += ["learner=[frozen,greedy]", "learners.greedy.tau=[0.04]"]
# They differ in a number, so that they share all compiled programs.
SWEPT, VALUES = "learners.greedy.eta_over_tau=", ("[0.1]", "[0.2]")


@pytest.fixture(params=LAUNCHERS, scope="module")  # runs first, since it may skip
def launcher(request):
    """Return the arguments that select a launcher; skip the test if it is not installed."""
    plugin, words = LAUNCHERS[request.param]
    try:
        metadata.version(plugin)
    except metadata.PackageNotFoundError:
        pytest.skip(f"no {plugin}: pip install jaxret[sweeps]")
    return [f"hydra/launcher={request.param}", *words]


@pytest.fixture(scope="module")
def sweep(world):
    """Start a sweep in its own process group, and kill the group at the end."""

    @contextmanager
    def of(folder, values, *words):
        points = SWEPT + ",".join(values)
        job = [*SMALL, points, *in_world(world, "${hydra:runtime.output_dir}")]
        names = {
            "JAX_NUM_CPU_DEVICES": "1",
            "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # as in this suite
            "PYTHONPATH": str(ROOT),
        }
        folder.mkdir(exist_ok=True)
        with (folder / "said.txt").open("a") as log:
            words = ("-m", "experiments.orag", "-m", *job, f"hydra.sweep.dir={folder}", *words)
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=os.environ | names,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if members(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    return of


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    """Run both points in the test's own process; return their folders, named as in a sweep."""
    folders = []
    for value in VALUES:
        cfg = config_of("orag", *SMALL, SWEPT + value, *in_world(world, ""))
        folders.append(tmp_path_factory.mktemp("runs") / f"jsonl-{fingerprint(_root_=cfg)}")
        cfg.directory = str(folders[-1])
        orag.main(cfg)
    return folders


def members(group):
    """Return the processes of a group that have not ended."""
    found = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True)
    lines = (line.split() for line in found.stdout.splitlines())
    return sum(int(own) == group and not stat.startswith("Z") for own, stat in lines)


def said(folder):
    logs = [folder / "said.txt", *folder.glob(".submitit/*/*_log.*")]
    return "\n".join(f"--- {path.name}:\n{path.read_text()[-4000:]}" for path in logs)


def times(run):
    """Return when each result file was last written."""
    kept = [*run.glob("*.json"), *run.glob("*.npz"), *run.glob("*.png"), *run.glob("steps/[!.]*")]
    return {path: path.stat().st_mtime_ns for path in kept}


def wait(done, seconds, folder):
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, said(folder)
        time.sleep(0.02)


def test_an_interrupted_sweep_resumes_with_the_results_of_one_process(
    launcher, finished, sweep, tmp_path
):
    """A sweep of one point is interrupted in its second step; of both, the other is finished."""
    old, cut = (tmp_path / run.name for run in finished)
    shutil.copytree(finished[0], old)
    before = times(old)
    with sweep(tmp_path, VALUES[1:], *launcher) as process:
        wait((cut / "steps" / "frozen.npz").exists, 300, tmp_path)
        os.killpg(process.pid, signal.SIGTERM)
        wait(lambda: process.poll() is not None and not members(process.pid), 60, tmp_path)
        assert process.returncode
    assert {run.state for run in collect(tmp_path)} > {"finished"}
    done = {path: time for path, time in times(cut).items() if path.parent.name == "steps"}
    assert done

    with sweep(tmp_path, VALUES, *launcher) as process:
        assert process.wait(300) == 0, said(tmp_path)
        wait(lambda: not members(process.pid), 60, tmp_path)  # helpers end after the sweep
    assert [run.state for run in collect(tmp_path)] == ["finished"] * 2
    assert times(old) == before
    assert times(cut).items() >= done.items()
    assert read_results(cut) == read_results(finished[1])


def test_near_the_end_of_its_time_a_job_is_sent_what_saves_a_run():
    environment = pytest.importorskip("submitit.core.job_environment", reason="no submitit")
    assert environment.JobEnvironment.USR_SIG == "TERM"
