"""Parallel runs: order within a chain, isolation of failures, and SIGTERM for all workers."""

import os
import signal
import time

import pytest
from omegaconf import OmegaConf

from experiments.report.jobs import Job
from experiments.report.workers import side_by_side
from jaxret.runtime.checkpoint import Interrupted, interruptible


def job(directory):
    """Make a job with a config so large that a few such configs fill a pipe."""
    cfg = OmegaConf.create({"directory": str(directory), "long": "x" * 50_000})
    return Job(dataset="d", change="", command=f"run {directory.name}", cfg=cfg, data=None)


def works(cfg):
    """Record the process in which it ran."""
    print("this is said in", cfg.directory)
    with open(f"{cfg.directory}/pid", "w") as file:
        file.write(str(os.getpid()))


def waits_for_b(cfg):
    """End once the neighbouring run has worked, so never if runs are not parallel."""
    deadline = time.monotonic() + 120
    while not os.path.exists(f"{cfg.directory}/../b/pid"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    works(cfg)


def fails(cfg):
    raise ValueError("no such tool")


def stops_everybody(cfg):
    """Start a run that is in progress when its parent receives SIGTERM."""
    with interruptible() as interrupted:
        os.kill(os.getppid(), signal.SIGTERM)
        deadline = time.monotonic() + 120
        while not interrupted():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    works(cfg)
    raise Interrupted(cfg.directory, 1)


def test_chains_run_side_by_side_and_the_rest_follows_also_after_a_failure(tmp_path):
    """Two workers run three chains; one chain waits for another, in which a run fails."""
    runs = {"a": waits_for_b, "failed": fails, "b": works, "c": works}
    tasks = {name: (run, job(tmp_path / name)) for name, run in runs.items()}
    side_by_side([[tasks["a"]], [tasks["failed"], tasks["b"]], [tasks["c"]]], workers=2)
    pids = {name: (tmp_path / name / "pid").read_text() for name in "abc"}
    assert pids["a"] != pids["b"]
    assert pids["c"] in (pids["a"], pids["b"])
    assert not (tmp_path / "failed" / "pid").exists()
    output = (tmp_path / "c" / "output.txt").read_text()
    assert output == f"this is said in {tmp_path / 'c'}\n"


@pytest.mark.slow
def test_sigterm_lets_every_run_save_and_starts_no_other(tmp_path, capfd):
    before = signal.getsignal(signal.SIGTERM)
    tasks = [(stops_everybody, job(tmp_path / "first")), (works, job(tmp_path / "second"))]
    with pytest.raises(SystemExit) as stop:
        side_by_side([[task] for task in tasks], workers=1)
    assert stop.value.code == 143
    assert "the same command resumes" in capfd.readouterr().err
    assert (tmp_path / "first" / "pid").exists()
    assert not (tmp_path / "second").exists()
    assert signal.getsignal(signal.SIGTERM) == before
