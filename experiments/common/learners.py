"""A learner with a grid of settings, from plain data: names looked up in the registries.

    grid = learner_grid("greedy", {
        "policy": "greedy", "estimator": "bandit_likelihood", "projection": "sphere",
        "schedule": "constant", "tau": [0.02, 0.04], "eta_over_tau": [0.1, 0.3],
    })
    grid = learner_grid("mine", {"preset": "mapped", "rate": [1.0, 3.0]})

Nothing is imported by a string: a new estimator, policy, preset, ... is known by its line in a
registry.

Letters: G settings.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxret.learners import adamw
from jaxret.learners.grid import LearnerGrid, grid
from jaxret.learners.rank_one import rank_one
from jaxret.learners.wrappers import with_experience_replay, with_preconditioner, with_query_map
from jaxret.rules import estimators, policies, preconditioners, projections, query_maps, schedules
from jaxret.runtime.validate import from_registry

REGISTRIES = {
    "policy": policies.REGISTRY,
    "estimator": estimators.REGISTRY,
    "projection": projections.REGISTRY,
    "schedule": schedules.REGISTRY,
    "query_map": query_maps.REGISTRY,
    "preconditioner": preconditioners.REGISTRY,
}
NEEDED = ("policy", "estimator", "projection", "schedule", "tau", "eta_over_tau")
MORE = ("query_map", "map_every", "preconditioner", "experience_replay")
OF_TRAINER = ("policy", "estimator", "schedule", "batch", "tau", "eta")


def learner_grid(name: str, spec: Mapping[str, Any]) -> LearnerGrid:
    """Reads the settings of a learner.

    Args:
      name: of the learner.
      spec: ``policy``, ``estimator``, ``projection`` and ``schedule``, each a name, or a mapping
        of ``name`` and settings; ``tau`` and ``eta_over_tau``, numbers or lists, whose product is
        the grid. ``query_map`` and ``preconditioner`` (likewise) and ``experience_replay`` (its
        settings) wrap the learner; ``map_every`` says how often a query map moves. With ``batch``
        it is the paper's trainer, which has ``eta``, its learning rate, in the place of
        ``eta_over_tau``, and no projection and no wrapper. With ``preset`` it is that preset, and
        all else are its settings.

    Raises:
      ValueError: for anything that is unknown, missing, out of range, or does not go together.
    """
    if "preset" in spec:
        return _of_preset(name, spec)
    needed = OF_TRAINER if "batch" in spec else NEEDED
    known = needed if "batch" in spec else (*NEEDED, *MORE)
    if unknown := sorted(set(spec) - set(known)):
        kind = "learner with a batch" if "batch" in spec else "learner"
        raise ValueError(
            f"{kind} {name!r} has unknown settings {unknown}; known: {', '.join(known)}"
        )
    if missing := [key for key in needed if key not in spec]:
        raise ValueError(f"learner {name!r} lacks {', '.join(missing)}")
    if "batch" in spec:
        return _trainer(name, spec)
    parts = {
        kind: from_registry(f"learner {name!r}", kind, registry, spec[kind])
        for kind, registry in REGISTRIES.items()
        if kind in spec
    }
    query_map, preconditioner = (parts.pop(key, None) for key in ("query_map", "preconditioner"))
    if query_map is None and "map_every" in spec:
        raise ValueError(f"learner {name!r} has map_every, but no query_map")
    replay = spec.get("experience_replay")
    if replay is not None and not parts["estimator"].bandit:
        raise ValueError(f"learner {name!r} gets labels, and experience replay keeps rewards alone")

    def make(tau, eta):
        learner = rank_one(name, tau=tau, eta=eta, **parts)
        if preconditioner is not None:
            learner = with_preconditioner(learner, preconditioner)
        if query_map is not None:
            learner = with_query_map(learner, query_map, map_every=spec.get("map_every", 1))
        if replay is not None:
            learner = with_experience_replay(learner, **replay)
        return learner._replace(name=name)

    settings = _product(name, spec, "eta_over_tau")
    settings[:, 1] *= settings[:, 0]
    make(1.0, 1.0)  # refuses what does not go together before anything is computed
    return LearnerGrid(name, make, settings)


def shared_grid(
    specs: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any]
) -> list[LearnerGrid]:
    """Learners that differ in how they act and what they make of the reward, in nothing else.

    Args:
      specs: name -> ``policy`` and ``estimator``.
      shared: ``projection``, ``schedule``, ``tau`` and ``eta_over_tau`` of all.

    Raises:
      ValueError: for a spec with more or less, and whatever `learner_grid` refuses.
    """
    for name, spec in specs.items():
        if set(spec) != {"policy", "estimator"}:
            raise ValueError(
                f"learner {name!r} needs policy and estimator, got {sorted(spec)}; "
                f"{', '.join(shared)} are given once, for all"
            )
    return [learner_grid(name, {**spec, **shared}) for name, spec in specs.items()]


def _of_preset(name: str, spec: Mapping[str, Any]) -> LearnerGrid:
    """A preset by its name in the registry."""
    settings = dict(spec)
    if (preset := registry.factories().get(settings.pop("preset"))) is None:
        known = ", ".join(registry.factories())
        raise ValueError(f"learner {name!r}: unknown preset {spec['preset']!r}; known: {known}")
    try:
        inspect.signature(preset).bind(**settings)
    except TypeError as error:
        raise ValueError(f"learner {name!r}: preset {spec['preset']!r}: {error}") from error
    found = grid(preset, **settings)
    return found._replace(name=name, make=lambda *numbers: found.make(*numbers)._replace(name=name))


def _trainer(name: str, spec: Mapping[str, Any]) -> LearnerGrid:
    """The paper's trainer."""
    parts = {
        kind: from_registry(f"learner {name!r}", kind, REGISTRIES[kind], spec[kind])
        for kind in ("policy", "estimator", "schedule")
    }

    def make(tau, eta):
        return adamw.minibatch_adamw(tau=tau, eta=eta, batch=spec["batch"], **parts)

    make(1.0, 1.0)
    return LearnerGrid(name, make, _product(name, spec, "eta"))


def _product(name: str, spec: Mapping[str, Any], rate: str) -> Float[np.ndarray, "G 2"]:
    """Every tau with every rate, as they are given."""
    taus, rates = (np.atleast_1d(np.asarray(spec[key], np.float64)) for key in ("tau", rate))
    if (taus <= 0).any() or (rates < 0).any() or not taus.size * rates.size:
        raise ValueError(
            f"learner {name!r} needs tau > 0 and {rate} >= 0, "
            f"got tau={taus.tolist()}, {rate}={rates.tolist()}"
        )
    return np.array([(tau, eta) for tau in taus for eta in rates])
