"""Trained parameters on disk: trained once for given settings, read afterwards.

The folder of a model is named by everything that decides its parameters. Training that is
interrupted resumes there and ends with the same bits:

    FOLDER/mlc-deskbank-0-1f2e3d4c/     best/ checkpoints/ metrics.jsonl settings.json
"""

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
from jaxret.types import Params


class Hooks(NamedTuple):
    """The tracker, progress bar and callbacks of a training run."""

    tracker: tracking.Tracker = tracking.NoopTracker()  # receives losses and validation metrics
    interrupted: Callable[[], bool] = lambda: False  # `jaxret.runtime.checkpoint.interruptible`
    progress: bool = True  # whether to show a bar
    say: Callable[[str], None] = lambda line: None  # receives a line about what is trained


def fitted(
    title: str,
    config: TrainingConfig,
    seed: int,
    *,
    start: Params,
    objective: Callable[[], loop.Objective],
    validate: Callable[[Params], Mapping[str, float]],
    folder: Path | None,
    settings: Mapping[str, Any],
    hooks: Hooks,
) -> Params:
    """Read parameters, or train them and keep those with the highest validation score.

    Args:
      title: title of the progress bar and of the tracked metrics.
      config: the training settings.
      seed: seed of dropout and other random draws of the loss.
      start: the parameters before training.
      objective: makes loss and batches; called only if there is something to train.
      validate: maps parameters to metrics, the first of which is the score.
      folder: folder of this model; None keeps nothing.
      settings: written beside the model for readers.
      hooks: tracker, progress bar and callbacks of the run.

    Raises:
      jaxret.runtime.checkpoint.Interrupted: when asked to stop, after saving the state.
    """
    if folder is None:
        return _trained(title, config, seed, start, objective(), validate, None, hooks).best
    with Checkpointer(folder / "best", keep=1) as store:
        if found := store.restore_latest(start):
            return found.state
    begin = time.perf_counter()
    fit = _trained(title, config, seed, start, objective(), validate, folder, hooks)
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


def _trained(title, config, seed, params, objective, validate, folder, hooks) -> loop.Fit:
    """Run `loop.fit` with the settings of a config.

    Several processes share each batch, each with equally many devices, and each returns arrays of
    its own.
    """
    batches = objective.batches
    steps = max(1, round(config.epochs * batches.epoch))
    optimizer = config.optimizer(steps)
    tracker, resumable = hooks.tracker, None
    if folder is not None:
        own = [tracking.JsonlTracker(folder)] if distributed.leads() else []
        tracker = tracking.CompositeTracker(*own, tracker)
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
        mesh=_mesh(batches.size // config.accumulate) if distributed.several() else None,
        title=title,
        progress=hooks.progress,
    )
    return distributed.local(fit)


def _mesh(size: int) -> Mesh:
    """Return a mesh that splits ``size`` examples evenly, with equally many devices per process."""
    processes = jax.process_count()
    if size % processes:
        raise ValueError(
            f"a batch of {size} examples does not divide over {processes} processes: "
            f"give a size that is a multiple of {processes} (times accumulate)"
        )
    each = math.gcd(size // processes, jax.local_device_count())
    return sharding.make_mesh(data=processes * each)
