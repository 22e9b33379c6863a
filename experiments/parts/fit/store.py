"""Trained models: fitted once for a set of settings, found again afterwards.

A model's folder is named by all that decides its parameters (data, split, encoder, documents,
recipe, seed), so every experiment that asks for the same model gets the same file. Training resumes
like any other run.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from omegaconf import DictConfig

from experiments.parts.config import plain
from experiments.parts.run import Run
from jaxret import tracking
from jaxret.checkpoint import Checkpointer
from jaxret.training import loop, schedules
from jaxret.training.recipes import Recipe
from jaxret.types import Params

SCHEDULES = {
    "warmup_cosine": schedules.warmup_cosine,
    "reference": schedules.reference_warmup_cosine,
}
#: The parts of a config that decide a model, beside its own recipe.
DATA = ("dataset", "encoder", "document", "split")


class Model(NamedTuple):
    """Parameters, and how they came about."""

    params: Params
    facts: Mapping[str, float]  # best step and validation score, seconds of training


def fitted(
    cfg: DictConfig,
    run: Run,
    name: str,
    seed: int,
    *,
    settings: Mapping[str, Any],
    start: Callable[[], Params],
    recipe: Callable[[], Recipe],
    validate: Callable[[Params], Mapping[str, float]],
) -> Model:
    """Reads a model, or trains it and keeps what validates best.

    Args:
      cfg: names the data and the folder of models.
      run: whose interruption stops the training.
      name: of the recipe.
      seed: of weights, order and dropout.
      settings: of the recipe, and of every model under it.
      start: makes the parameters before training; called only if needed, as are the others.
      recipe: makes loss and batches.
      validate: parameters -> numbers, the first of which decides.
    """
    told = {key: plain(cfg, resolve=False).get(key) for key in DATA}
    whole = {**told, "settings": dict(settings), "seed": seed}
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:8]
    folder = Path(cfg.models) / f"{name}-{cfg.dataset.name}-{seed}-{digest}"
    params = start()
    with Checkpointer(folder / "best", keep=1) as store:
        if found := store.restore_latest(params):
            return Model(params=found.state, facts=found.meta)
    begin = time.perf_counter()
    fit = train(folder, run, name, seed, settings, params, recipe(), validate)
    facts = {
        "best_step": float(fit.best_step),
        "validation": float(fit.score),
        "seconds": time.perf_counter() - begin,  # of this process, if the run was interrupted
    }
    with Checkpointer(folder / "best", keep=1) as store:
        store.save(int(fit.best_step), fit.best, facts)
    (folder / "settings.json").write_text(json.dumps(whole, indent=2) + "\n")
    return Model(params=fit.best, facts=facts)


def train(
    folder: Path,
    run: Run,
    name: str,
    seed: int,
    settings: Mapping[str, Any],
    params: Params,
    recipe: Recipe,
    validate: Callable[[Params], Mapping[str, float]],
) -> loop.Fit:
    """The loop of `jaxret.training`, with the optimiser that the settings describe."""
    epochs, batches = settings["epochs"], recipe.batches
    steps = max(1, round(epochs * batches.epoch))
    optimizer = adamw(settings, steps)
    tracker = tracking.CompositeTracker(tracking.JsonlTracker(folder), run.tracker)
    step = loop.train_step(recipe.loss, optimizer, accumulate=settings["accumulate"])
    state = loop.start(params, optimizer, jax.random.key(seed))
    return loop.fit(
        state,
        step,
        batches,
        steps=steps,
        validate=validate,
        every=max(1, round(settings["validate"] * batches.epoch)),
        frozen=recipe.frozen,
        resumable=run.resumable(folder / "checkpoints"),
        tracker=tracker,
        title=f"{name}-{seed}",
    )


def adamw(settings: Mapping[str, Any], steps: int) -> optax.GradientTransformation:
    """AdamW with warm-up, cosine and clipping, as the recipe says.

    ``warmup`` is a number of steps, or a share of all steps where it is below 1.
    """
    if settings["schedule"] not in SCHEDULES:
        raise ValueError(f"schedule must be one of {list(SCHEDULES)}, got {settings['schedule']!r}")
    warmup = settings["warmup"]
    warmup = max(1, round(warmup * steps)) if warmup < 1 else int(warmup)
    rate = SCHEDULES[settings["schedule"]](
        settings["learning_rate"], warmup=min(warmup, steps), total=steps
    )
    optimizer = optax.adamw(rate, weight_decay=settings["weight_decay"])
    if settings["clip"] is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(settings["clip"]), optimizer)


def mean(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Means over queries."""
    return {name: float(np.mean(value, dtype=np.float64)) for name, value in values.items()}
