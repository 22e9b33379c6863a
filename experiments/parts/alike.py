"""Learners that differ in how they act and in what they make of the bit, and in nothing else."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from experiments.parts import learners
from experiments.parts.config import plain
from experiments.parts.learners import Rival

SHARED = ("projection", "schedule", "tau", "step")


def build(specs: Mapping[str, Mapping[str, Any]], cfg: DictConfig) -> list[Rival]:
    """One rival a spec, each with the same grid, projection and schedule.

    Args:
      specs: name -> ``policy`` and ``estimator``.
      cfg: has the parts that are `SHARED`.

    Raises:
      ValueError: for a spec with more or less, and for what `learners.build` does not know.
    """
    shared = {part: value for part, value in plain(cfg).items() if part in SHARED}
    for name, spec in specs.items():
        if set(spec) != {"policy", "estimator"}:
            raise ValueError(
                f"learner {name!r} needs policy and estimator, got {sorted(spec)}; "
                f"{', '.join(SHARED)} are given once, for all"
            )
    return [learners.build(name, {**spec, **shared}) for name, spec in specs.items()]
