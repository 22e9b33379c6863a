"""Learners with grids of settings, from lines of ``configs/learners.yaml``.

    grid = learner_grid("greedy", {"preset": "greedy", "tau": [0.02, 0.04], "eta_over_tau": [0.1]})
    grid = learner_grid("mine", {"policy": "softmax", "estimator": "clipped", "projection": "ball",
                                 "schedule": "constant", "tau": 0.02, "eta_over_tau": [0.1, 0.3]})

A line names a preset and its settings, or the four parts of a rank-one learner; ``file`` names a
learner in a file (`experiments.common.learner_files`). A list is an axis of the grid.
``eta_over_tau``, the step of a row per unit of coefficient, replaces ``eta``; ``experts`` of a
mixture are arguments of `jr.default_experts`, and ``memory`` those of `jr.with_memory`. Parts are
names of factories in `jaxret.rules`, or mappings of ``name`` and settings.

Letters: G settings, n numbers of a setting.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool

import jaxret as jr
from experiments.common import learner_files
from jaxret.learners import registry
from jaxret.learners.grid import LearnerGrid, grid
from jaxret.learners.learner import Learner
from jaxret.learners.rank_one import rank_one
from jaxret.rules import estimators, policies, projections, schedules
from jaxret.runtime.memo import factories
from jaxret.runtime.validate import from_registry
from jaxret.task import Task

PARTS: dict[str, Mapping[str, Callable]] = {
    "policy": factories(policies),
    "estimator": factories(estimators),
    "projection": factories(projections),
    "schedule": factories(schedules),
}


def chosen(
    grid: LearnerGrid,
    task: Task,
    *,
    on: Bool[np.ndarray, "*S N"],
    metric: str,
    seeds: Sequence[int],
    **stream: Any,
) -> LearnerGrid:
    """Choose a setting of a grid by validation queries; a single setting needs no stream.

    Args:
      grid: grid of settings.
      task: task whose queries are streamed.
      on: validation queries: those of each seed [S, N], or the same of all seeds [N], which then
        have one setting.
      metric: metric of the ranking, which `jaxret.simulation.sweep.Sweep.best` adds to the success.
      seeds: S seeds.
      **stream: further arguments of `jr.sweep`.

    Returns:
      The grid with the setting of each seed [S, n], for `jr.simulate`.
    """
    if len(grid.settings) == 1:
        return grid._replace(settings=np.repeat(grid.settings, len(seeds), axis=0))
    best = jr.sweep(grid, task, seeds=seeds, **stream).best(on=on, metric=metric)
    return grid._replace(settings=best.numbers)


def learner_grid(name: str, spec: Mapping[str, Any]) -> LearnerGrid:
    """Read a learner and its grid."""
    own = "file" in spec
    settings = {
        key: from_registry(f"learner {name!r}", key, PARTS[key], value)
        if key in PARTS and value is not None and not own
        else value
        for key, value in spec.items()
        if key not in ("preset", "file")
    }
    if own:
        make = learner_files.maker(spec["file"])
    else:
        make = _preset(name, spec["preset"]) if "preset" in spec else _of_parts(name, spec)
    ratios, memory = (settings.pop(key, None) for key in ("eta_over_tau", "memory"))
    if ratios is not None:
        settings["eta"] = ratios
    try:
        if spec.get("preset") == "mixture" and "experts" in settings:
            make = partial(make, jr.default_experts(**settings.pop("experts")))
        inspect.signature(make).bind(**settings)
    except TypeError as error:
        raise ValueError(f"learner {name!r}: {error}") from error
    axes = ("tau", "eta") if ratios is not None else ()
    numbers = {k: np.atleast_1d(x) for k, x in settings.items() if k in axes or _is_axis(x)}
    for key, values in () if own else numbers.items():  # a function of a file knows its ranges
        if not values.size or (values < 0).any() or (key == "tau" and (values == 0).any()):
            low = "tau > 0" if key == "tau" else f"{key} >= 0"
            raise ValueError(f"learner {name!r} needs {low}, got {key}={values.tolist()}")
    found = grid(make, **settings | {key: x.tolist() for key, x in numbers.items()})
    if ratios is not None:
        tau, eta = found.names.index("tau"), found.names.index("eta")
        found.settings[:, eta] *= found.settings[:, tau]
    if memory is not None:
        found = found.wrapped(partial(jr.with_memory, **memory))
    return found.named(name)


def shared_grid(
    specs: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any]
) -> list[LearnerGrid]:
    """Read learners that differ only in policy and estimator."""
    for name, spec in specs.items():
        if set(spec) != {"policy", "estimator"}:
            raise ValueError(
                f"learner {name!r} needs policy and estimator, got {sorted(spec)}; "
                f"{', '.join(shared)} are given once, for all"
            )
    return [learner_grid(name, {**spec, **shared}) for name, spec in specs.items()]


def _preset(name: str, preset: str) -> Callable[..., Learner]:
    known = registry.factories()
    if preset not in known:
        raise ValueError(f"learner {name!r}: unknown preset {preset!r}; known: {', '.join(known)}")
    return known[preset]


def _of_parts(name: str, spec: Mapping[str, Any]) -> Callable[..., Learner]:
    """Make a rank-one learner from its parts."""
    needed = (*PARTS, "tau", "eta_over_tau")
    if set(spec) != set(needed):
        wrong = sorted(set(spec) ^ set(needed))
        raise ValueError(
            f"learner {name!r} needs a preset, or exactly {', '.join(needed)}; see {wrong}"
        )

    def make(*, policy, estimator, projection, schedule, tau, eta):
        parts = {"policy": policy, "estimator": estimator, "projection": projection}
        return rank_one(name, schedule=schedule, tau=tau, eta=eta, **parts)

    return make


def _is_axis(value: Any) -> bool:
    return isinstance(value, list | tuple) and not hasattr(value, "_fields")
