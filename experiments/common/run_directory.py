"""Run directories, which store finished steps and checkpoints of the current step.

A run is a sequence of named steps (such as a learner on a stream). The result of a finished step is
a file in ``steps/``; an interrupted simulation leaves an orbax checkpoint of its whole state. The
same command therefore continues an interrupted run, with the same result bit for bit. The directory
is named by the settings, the content of the data and the version of the code, not by the time; a
finished run is only read.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict
from matplotlib.figure import Figure
from omegaconf import DictConfig

from experiments.common.config import TRACKING, settings
from jaxret.evaluation import plots
from jaxret.runtime import distributed, memory, sharding, tracking
from jaxret.runtime.checkpoint import Interrupted, interruptible
from jaxret.runtime.files import write_whole
from jaxret.runtime.progress import Progress

Compute = Callable[[], Mapping[str, Any]]  # returns the arrays of a step by name


class RunDirectory:
    """A directory with a tracker and results of steps, from `open_run`."""

    def __init__(self, cfg: DictConfig, interrupted: Callable[[], bool]):
        self.directory = Path(cfg.directory)
        self.interrupted = interrupted
        self.tracker = _tracker(cfg) if distributed.leads() else tracking.NoopTracker()
        self._began = time.perf_counter()

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write ``results.json``, one value per seed of each result, and track the means."""
        self.tracker.summary({name: float(np.mean(values)) for name, values in results.items()})
        if distributed.leads():
            tracking.write_results(self.directory, results)

    def save_curves(self, curves: Mapping[str, Any]) -> None:
        """Write ``curves.npz``: arrays by name; those of a nested mapping as ``name/kind``."""
        if distributed.leads():
            flat = flatten_dict(dict(curves), sep="/")
            np.savez(self.directory / "curves.npz", allow_pickle=False, **flat)

    def save_figure(self, figure: Figure, name: str, title: str | None = None) -> None:
        """Save a figure as ``NAME.png``, and track it by its title."""
        path = self.directory / f"{name}.png"
        if distributed.leads():
            plots.save(figure, path)
        self.tracker.figure(title or name, path)

    def clock(self) -> None:
        """Add the seconds of this process to ``speed.json``."""
        if not distributed.leads():
            return
        path = self.directory / "speed.json"
        before = json.loads(path.read_text()) if path.exists() else {"seconds": 0.0}
        seconds = before["seconds"] + time.perf_counter() - self._began
        path.write_text(json.dumps({"seconds": seconds}) + "\n")

    def pause(self, done: int) -> None:
        """Raise `Interrupted` if the run was asked to stop, for loops that save by themselves.

        ``done``, the number of steps so far, is part of the message.
        """
        if self.interrupted():
            raise Interrupted(self.directory, done)

    def results(
        self, steps: Mapping[str, Compute], unit: str
    ) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """Yield the name and the `result` of each step, with a progress bar.

        The run can be stopped between two steps.
        """
        for done, name in enumerate(bar := Progress(steps, unit=unit)):
            bar.set_postfix_str(name)
            self.pause(done)
            yield name, self.result(name, steps[name])

    def result(self, name: str, compute: Compute) -> dict[str, np.ndarray]:
        """Compute the arrays of a step, or read them if they were computed before.

        Args:
          name: name of the step; its file has dashes for slashes and blanks.
          compute: returns arrays by name; its simulations resume in `resume` folders of this step,
            which are deleted when it is finished.
        """
        path = self.directory / "steps" / f"{_flat(name)}.npz"
        if not distributed.agreed(path.exists()):
            _write(path, {key: np.asarray(value) for key, value in compute().items()})
            distributed.wait()  # wait until no process has checkpoints open
            if distributed.leads():
                shutil.rmtree(self.resume(name), ignore_errors=True)
        return _read(path)

    def resume(self, step: str, simulation: str = "") -> Path:
        """Return the folder in which a simulation of a step is checkpointed (``resume=``)."""
        return self.directory / "checkpoints" / _flat(step) / simulation


@contextmanager
def open_run(cfg: DictConfig) -> Generator[RunDirectory | None]:
    """Open the directory of a run, to compute or resume it; yield None if it is finished.

    ``again=true`` empties it first. An explicit directory that holds a run with other settings is
    refused, since steps of both would mix.
    """
    directory = Path(cfg.directory)
    if cfg.again and distributed.leads():
        for part in ("steps", "checkpoints", "embeddings"):
            shutil.rmtree(directory / part, ignore_errors=True)
        for part in (
            "results.json",
            "settings.json",
            "metrics.jsonl",
            "speed.json",
            "wandb_id.txt",
        ):
            (directory / part).unlink(missing_ok=True)
    distributed.wait()  # wait until the folder is empty
    ours = settings(cfg)
    record = directory / "settings.json"
    if record.exists() and (theirs := json.loads(record.read_text())) != ours:
        differ = sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
        raise ValueError(
            f"{directory} holds a run with other settings ({', '.join(differ)} differ):"
            " give another hydra.run.dir, or again=true to replace it"
        )
    if distributed.agreed((directory / "results.json").exists()):
        print(f"finished before, read from {directory} (again=true repeats it)")
        yield None
        return
    directory.mkdir(parents=True, exist_ok=True)
    if distributed.leads():
        write_whole(record, json.dumps(ours, indent=2) + "\n")
    memory.retain_freed_memory()  # before JAX computes anything, as the next line
    sharding.one_device_a_core()
    with interruptible() as interrupted:
        run = RunDirectory(cfg, interrupted)
        try:
            yield run
        except Interrupted as stop:
            print(stop, file=sys.stderr)
            raise
        finally:
            run.clock()
            run.tracker.finish()


def _flat(step: str) -> str:
    return step.replace("/", "-").replace(" ", "-")


def _tracker(cfg: DictConfig) -> tracking.Tracker:
    directory = Path(cfg.directory)
    return tracking.WandbTracker(
        directory,
        project=cfg.project,
        group=cfg.experiment,
        name=directory.name,
        config=settings(cfg),
        mode=TRACKING[cfg.tracking],
    )


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            return dict(file)
    except Exception as error:  # NumPy raises many kinds for a damaged file
        raise ValueError(f"{path} cannot be read: delete it, and its step is repeated") from error


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays atomically."""
    if not distributed.leads():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    np.savez(temporary, allow_pickle=False, **arrays)
    os.replace(temporary, path)
