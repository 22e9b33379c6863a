"""The rules of a scenario, as they show one tool or several."""

import inspect
from collections.abc import Mapping
from typing import Any

from experiments.common.learners import learner_grid
from jaxret.learners.grid import LearnerGrid
from jaxret.rules import policies


def rule_showing(name: str, spec: Mapping[str, Any], shown: int) -> LearnerGrid | None:
    """A rule of ``configs/learners.yaml`` that shows so many tools; None where it cannot.

    Args:
      name: of the rule.
      spec: its settings, as `experiments.common.learners.learner_grid` takes them.
      shown: tools in a round; at 1 the rule is left as it is.
    """
    if shown == 1:
        return learner_grid(name, spec)
    if "preset" in spec:
        takes = inspect.signature(registry.factories()[spec["preset"]]).parameters
        if "k" in takes:
            return learner_grid(name, {**spec, "k": shown})
        if "policy" in takes:
            return learner_grid(name, {**spec, "policy": policies.greedy(k=shown)})
        return None
    if "batch" in spec:
        return None
    policy = spec["policy"]
    several = ({"name": policy} if isinstance(policy, str) else dict(policy)) | {"k": shown}
    return learner_grid(name, {**spec, "policy": several})


def static_rule(shown: int) -> LearnerGrid:
    """Static retrieval: so many of the best by the documents."""
    parts = {"estimator": "none", "projection": "none", "schedule": "constant"}
    policy = {"name": "greedy", "k": shown}
    return learner_grid("frozen", {**parts, "policy": policy, "tau": 0.02, "eta_over_tau": 0.0})
