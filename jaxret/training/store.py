"""Trained parameters: fitted once for a set of settings, found again afterwards.

A model's folder is named by all that decides its parameters, so whoever asks for the same model
gets the same file. Training that is cut off resumes there, to the same bits:

    FOLDER/mlc-deskbank-0-1f2e3d4c/     best/ checkpoints/ metrics.jsonl settings.json
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from jaxret.runtime import distributed, sharding, tracking
from jaxret.runtime.checkpoint import Checkpointer, run_chunks
from jaxret.training import loop
from jaxret.training.config import TrainingConfig
from jaxret.training.objectives import Objective
from jaxret.types import Params


class Hooks(NamedTuple):
    """What looks on while something is trained."""

    tracker: tracking.Tracker = tracking.NoopTracker()  # gets losses and validation numbers
    interrupted: Callable[[], bool] = lambda: (
        False
    )  # from `jaxret.runtime.checkpoint.interruptible`
    progress: bool = True  # shows a bar
    say: Callable[[str], None] = lambda line: None  # gets a line on what will be trained


def fitted(
    title: str,
    config: TrainingConfig,
    seed: int,
    *,
    start: Params,
    objective: Callable[[], Objective],
    validate: Callable[[Params], Mapping[str, float]],
    folder: Path | None,
    settings: Mapping[str, Any],
    hooks: Hooks,
) -> Params:
    """Reads parameters, or trains them and keeps what validates best.

    Args:
      title: of the progress bar and of the numbers that are tracked.
      config: how to train.
      seed: of the dropout.
      start: the parameters before training.
      objective: makes loss and batches; called only if there is something to train.
      validate: parameters -> numbers, the first of which decides.
      folder: of this model; None keeps nothing.
      settings: written beside the model, for people.
      hooks: see `Hooks`.

    Raises:
      jaxret.runtime.checkpoint.Interrupted: when asked to stop, with the state saved.
    """
    if folder is None:
        return train(title, config, seed, start, objective(), validate, None, hooks).best
    with Checkpointer(folder / "best", keep=1) as store:
        if found := store.restore_latest(start):
            return found.state
    begin = time.perf_counter()
    fit = train(title, config, seed, start, objective(), validate, folder, hooks)
    facts = {
        "best_step": float(fit.best_step),
        "validation": float(fit.score),
        "seconds": time.perf_counter() - begin,  # of this process, if training was interrupted
    }
    with Checkpointer(folder / "best", keep=1) as store:
        store.save(int(fit.best_step), fit.best, facts)
    if distributed.leads():
        (folder / "settings.json").write_text(json.dumps(settings, indent=2) + "\n")
    return fit.best


def train(
    title: str,
    config: TrainingConfig,
    seed: int,
    params: Params,
    objective: Objective,
    validate: Callable[[Params], Mapping[str, float]],
    folder: Path | None,
    hooks: Hooks,
) -> loop.Fit:
    """Runs the loop of `jaxret.training.loop` as the config says; arguments as of `fitted`.

    Several processes share each batch, with as many devices as divide it; what comes back is each
    one's own.
    """
    batches = objective.batches
    steps = max(1, round(config.epochs * batches.epoch))
    optimizer = config.optimizer(steps)
    tracker, resumable = hooks.tracker, None
    if folder is not None:
        tracker = tracking.CompositeTracker(*_own_trackers(folder), tracker)
        resumable = partial(run_chunks, folder / "checkpoints", hooks.interrupted)
    fit = loop.fit(
        loop.start(params, optimizer, jax.random.key(seed)),
        loop.train_step(objective.loss, optimizer, accumulate=config.accumulate),
        batches,
        steps=steps,
        validate=validate,
        every=max(1, round(config.validate * batches.epoch)),
        frozen=objective.frozen,
        resumable=resumable,
        tracker=tracker,
        mesh=_shared(batches.size // config.accumulate) if distributed.several() else None,
        title=title,
        progress=hooks.progress,
    )
    return distributed.local(fit)


def _own_trackers(folder: Path) -> list[tracking.Tracker]:
    return [tracking.JsonlTracker(folder)] if distributed.leads() else []


def _shared(size: int) -> Mesh:
    """Over which so many examples are split, each process with as many devices as any other."""
    processes = jax.process_count()
    if size % processes:
        raise ValueError(
            f"a batch of {size} examples does not divide over {processes} processes: "
            f"give a size that is a multiple of {processes} (times accumulate)"
        )
    each = math.gcd(size // processes, jax.local_device_count())
    return sharding.make_mesh(data=processes * each)


def model_folder(parent: str | Path, label: str, settings: Mapping[str, Any]) -> Path:
    """The folder of the model that these settings decide, inside of ``parent``."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return Path(parent) / f"{label}-{digest}"
