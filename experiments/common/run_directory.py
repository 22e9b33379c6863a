"""A run's directory: finished units are kept, the unit at work is checkpointed, all can resume.

A run is a row of units (a learner on a stream, say), each with a name. The result of a finished
unit is a file in ``units/``; an interrupted one leaves an orbax checkpoint of its whole state.
So the same command goes on where the last one stopped, and ends with the same bits. The
directory is named by the settings, the content of the data and the version of the code, not by the
clock; a finished run is only read.
"""

import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from omegaconf import DictConfig

from experiments.common.config import TRACKING, cache_folder, settings
from jaxret.evaluation import plots
from jaxret.runtime import distributed, memory, sharding, tracking
from jaxret.runtime.checkpoint import Interrupted, interruptible, run_chunks
from jaxret.runtime.files import write_whole
from jaxret.simulation.recording import Unit


class RunDirectory:
    """A directory, a tracker, and units. Made by `open_run`."""

    def __init__(self, cfg: DictConfig, interrupted: Callable[[], bool]):
        self.directory = Path(cfg.directory)
        self.interrupted = interrupted
        self.tracker = _tracker(cfg) if distributed.leads() else tracking.NoopTracker()
        self.rounds = 0.0  # that were simulated in this process, all seeds and settings together
        self._began = time.perf_counter()

    def finish(self, results: Mapping[str, Any]) -> None:
        """Writes ``results.json``, one value a seed of each result, and tracks the means."""
        self.tracker.summary({name: float(np.mean(values)) for name, values in results.items()})
        if distributed.leads():
            tracking.write_results(self.directory, results)

    def save_curves(self, curves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Writes ``curves.npz``: ``name/kind`` -> one line a seed."""
        flat = {f"{name}/{key}": x for name, each in curves.items() for key, x in each.items()}
        if distributed.leads():
            np.savez(self.directory / "curves.npz", allow_pickle=False, **flat)

    def save_figure(self, figure: Figure, name: str, title: str | None = None) -> None:
        """Saves a figure as ``NAME.png``, and tracks it by its title."""
        path = self.directory / f"{name}.png"
        if distributed.leads():
            plots.save(figure, path)
        self.tracker.figure(title or name, path)

    def clock(self) -> None:
        """Adds this process's rounds and seconds to ``speed.json``."""
        if not distributed.leads():
            return
        path = self.directory / "speed.json"
        before = json.loads(path.read_text()) if path.exists() else {"rounds": 0, "seconds": 0.0}
        seconds = before["seconds"] + time.perf_counter() - self._began
        speed = {"rounds": before["rounds"] + round(self.rounds), "seconds": seconds}
        path.write_text(json.dumps(speed) + "\n")

    def resumable(self, folder: Path) -> Callable[..., Any]:
        """`run_chunks` in a folder, stopped by what stops this run."""
        return partial(run_chunks, folder, self.interrupted)

    def pause(self, done: int) -> None:
        """Raises `Interrupted` if the run was asked to stop: for loops that save by themselves."""
        if self.interrupted():
            raise Interrupted(self.directory, done)

    def result(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Arrays that are computed in one go, or read if they were."""
        path = self.directory / "units" / f"{name}.npz"
        if not distributed.agreed(path.exists()):
            _write(path, {key: np.asarray(value) for key, value in compute().items()})
            distributed.wait()
        return _read(path)

    def unit(self, name: str) -> Unit:
        """What computes a unit of this name chunk by chunk, or reads it if it is finished."""
        return partial(self._compute, name)

    def _compute(
        self,
        name: str,
        *,
        chunks: int,
        start: Callable[[], Any],
        step: Callable[[Any, int], Any],
        finish: Callable[[Any], Mapping[str, Any]],
        keep_state: bool = False,
        rounds: int = 0,
    ) -> dict[str, np.ndarray]:
        path = self.directory / "units" / f"{name}.npz"
        if distributed.agreed(path.exists()):
            return _read(path)
        folder = self.directory / "checkpoints" / name

        def counted(state, number):
            self.rounds += rounds / chunks
            return step(state, number)

        state = self.resumable(folder)(chunks=chunks, start=start, step=counted, keep=keep_state)
        result = {key: np.asarray(value) for key, value in finish(state).items()}
        _write(path, result)
        distributed.wait()  # until nobody has the checkpoints open
        if not keep_state and distributed.leads():
            shutil.rmtree(folder)
        return result


@contextmanager
def open_run(cfg: DictConfig) -> Generator[RunDirectory | None]:
    """Opens the directory of a run, to be computed or resumed; None where it is finished.

    ``again=true`` empties it first. A directory that was given by hand and holds a run with
    other settings is refused: its units would be mixed with ours.
    """
    directory = Path(cfg.directory)
    if cfg.again and distributed.leads():
        for part in ("units", "checkpoints", "embeddings"):
            shutil.rmtree(directory / part, ignore_errors=True)
        for part in (
            "results.json",
            "settings.json",
            "metrics.jsonl",
            "speed.json",
            "wandb_id.txt",
        ):
            (directory / part).unlink(missing_ok=True)
    distributed.wait()  # until it is empty
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
    memory.retain_freed_memory()  # before JAX computes anything, as the next lines
    sharding.one_device_a_core()
    _keep_programs(cache_folder(cfg))
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


def _tracker(cfg: DictConfig) -> tracking.Tracker:
    directory = Path(cfg.directory)
    wandb = tracking.WandbTracker(
        directory,
        project=cfg.project,
        group=cfg.experiment,
        name=directory.name,
        config=settings(cfg),
        mode=TRACKING[cfg.tracking],
    )
    return tracking.CompositeTracker(tracking.JsonlTracker(directory), wandb)


def _keep_programs(cache: Path) -> None:
    """Lets runs find what others have compiled on this machine: a short run mostly compiles."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        folder = cache / "programs" / platform.node()
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            return dict(file)
    except Exception as error:  # NumPy raises many kinds for a damaged file
        raise ValueError(f"{path} cannot be read: delete it, and its unit is repeated") from error


def _write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Whole or not at all."""
    if not distributed.leads():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    np.savez(temporary, allow_pickle=False, **arrays)
    os.replace(temporary, path)
