"""From the config group `learner` to learners: names looked up in closed tables, nothing imported
by a string."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxret.online import (
    estimators,
    policies,
    preconditioners,
    projections,
    query_maps,
    schedules,
    trainer,
)
from jaxret.online.learner import Learner, rank_one
from jaxret.online.wrappers import with_experience_replay, with_preconditioner, with_query_map

POLICIES, ESTIMATORS = policies.REGISTRY, estimators.REGISTRY
PROJECTIONS, SCHEDULES = projections.REGISTRY, schedules.REGISTRY
QUERY_MAPS, PRECONDITIONERS = query_maps.REGISTRY, preconditioners.REGISTRY


class Rival(NamedTuple):
    """A learner up to its numbers, and the settings among which they are chosen."""

    name: str
    make: Callable[..., Learner]  # (tau, eta) -> Learner; both may be traced
    settings: np.ndarray  # [G, 2]: tau, eta
    steps: np.ndarray  # [G, 2]: the same as configs have them: tau, step


def build(name: str, spec: Mapping[str, Any]) -> Rival:
    """Reads one entry of ``cfg.learners``; raises ValueError for anything it does not know.

    ``step`` is eta / tau, or the learning rate where there is a ``batch`` (the paper's trainer).
    ``query_map``, ``preconditioner`` and ``experience_replay`` wrap it.
    """
    known = {"policy", "estimator", "projection", "schedule", "batch", "tau", "step"}
    known |= {"query_map", "preconditioner", "experience_replay"}
    if unknown := set(spec) - known:
        raise ValueError(
            f"learner {name!r} has unknown settings {sorted(unknown)}; known: {sorted(known)}"
        )
    taus, steps = (np.atleast_1d(np.asarray(spec[part], np.float64)) for part in ("tau", "step"))
    if (taus <= 0).any() or (steps < 0).any() or not taus.size * steps.size:
        raise ValueError(
            f"learner {name!r} needs tau > 0 and step >= 0, "
            f"got tau={taus.tolist()}, step={steps.tolist()}"
        )
    parts = {
        "policy": _part(name, "policy", POLICIES, spec["policy"]),
        "estimator": _part(name, "estimator", ESTIMATORS, spec["estimator"]),
        "schedule": _part(name, "schedule", SCHEDULES, spec["schedule"]),
    }
    pairs = np.array([(tau, step) for tau in taus for step in steps])
    given = pairs.copy()
    if "batch" in spec:
        if alone := sorted(
            {"query_map", "preconditioner", "experience_replay", "projection"} & set(spec)
        ):
            raise ValueError(f"learner {name!r}: the trainer with a batch has no {alone}")

        def make(tau, eta):
            return trainer.minibatch_adamw(
                tau=tau,
                eta=eta,
                batch=spec["batch"],
                policy=parts["policy"],
                estimator=parts["estimator"],
                schedule=parts["schedule"],
            )

        return Rival(name, make, pairs, given)
    parts["projection"] = _part(name, "projection", PROJECTIONS, spec["projection"])
    pairs[:, 1] *= pairs[:, 0]
    if "experience_replay" in spec and not parts["estimator"].bandit:
        raise ValueError(f"learner {name!r} is told labels, and bits alone are remembered")
    more = {
        kind: _part(name, kind, table, spec[kind])
        for kind, table in {"query_map": QUERY_MAPS, "preconditioner": PRECONDITIONERS}.items()
        if kind in spec
    }

    def one(tau, eta):
        learner = rank_one(name, tau=tau, eta=eta, **parts)
        if "preconditioner" in more:
            learner = with_preconditioner(learner, more["preconditioner"])
        if "query_map" in more:
            learner = with_query_map(learner, more["query_map"])
        if "experience_replay" in spec:
            learner = with_experience_replay(learner, **spec["experience_replay"])
        return learner._replace(name=name)

    one(1.0, 1.0)  # refuses what does not go together before anything is computed
    return Rival(name, one, pairs, given)


def _part(learner: str, kind: str, table: Mapping[str, Callable], spec: Mapping[str, Any]) -> Any:
    arguments = dict(spec)
    name = arguments.pop("name", None)
    if name not in table:
        raise ValueError(f"learner {learner!r}: unknown {kind} {name!r}; known: {', '.join(table)}")
    try:
        inspect.signature(table[name]).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"learner {learner!r}: {kind} {name!r}: {error}") from error
    return table[name](**arguments)
