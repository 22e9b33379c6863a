"""From the config group `learner` to learners: names looked up in closed tables, nothing imported
by a string."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxret.online import (
    estimators,
    lenses,
    policy,
    preconditioners,
    projections,
    schedules,
    trainer,
)
from jaxret.online.adaptive import adaptive
from jaxret.online.learner import Learner, rank_one
from jaxret.online.rehearsal import rehearsing

POLICIES = {f.__name__: f for f in (policy.softmax, policy.greedy, policy.epsilon_greedy)}
ESTIMATORS = {
    f.__name__: f
    for f in (
        estimators.importance_weighted,
        estimators.chosen_only,
        estimators.full_information,
        estimators.debiased,
        estimators.implicit_exploration,
        estimators.clipped,
        estimators.bandit_likelihood,
        estimators.banditron,
        estimators.none,
    )
}
PROJECTIONS = {f.__name__: f for f in (projections.none, projections.ball, projections.sphere)}
SCHEDULES = {f.__name__: f for f in (schedules.constant, schedules.inverse_sqrt, schedules.cosine)}
LENSES = {f.__name__: f for f in (lenses.linear, lenses.low_rank, lenses.centred)}
PRECONDITIONERS = {f.__name__: f for f in (preconditioners.second_moment, preconditioners.by_row)}


class Rival(NamedTuple):
    """A learner up to its numbers, and the settings among which they are chosen."""

    name: str
    make: Callable[..., Learner]  # (tau, eta) -> Learner; both may be traced
    settings: np.ndarray  # [G, 2]: tau, eta
    steps: np.ndarray  # [G, 2]: the same as configs have them: tau, step


def build(name: str, spec: Mapping[str, Any]) -> Rival:
    """Reads one entry of ``cfg.learners``; raises ValueError for anything it does not know.

    ``step`` is eta / tau, or the learning rate where there is a ``batch`` (the paper's trainer).
    ``lens`` and ``preconditioner`` make a learner `adaptive`; ``rehearsal`` lets it go over the
    past.
    """
    known = {"policy", "estimator", "projection", "schedule", "batch", "tau", "step"}
    known |= {"lens", "preconditioner", "rehearsal"}
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
        if alone := sorted({"lens", "preconditioner", "rehearsal", "projection"} & set(spec)):
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
    if "rehearsal" in spec and not parts["estimator"].bandit:
        raise ValueError(f"learner {name!r} is told labels, and rehearsal remembers bits alone")
    more = {
        kind: _part(name, kind, table, spec[kind])
        for kind, table in {"lens": LENSES, "preconditioner": PRECONDITIONERS}.items()
        if kind in spec
    }

    def one(tau, eta):
        learner = rank_one(name, tau=tau, eta=eta, **parts)
        learner = adaptive(learner, **more) if more else learner
        return rehearsing(learner, **spec["rehearsal"]) if "rehearsal" in spec else learner

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
