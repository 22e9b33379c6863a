"""Learning from one bit a round: policies, estimators, learners, environments, simulation."""

from typing import TYPE_CHECKING

from jaxret.lazy import lazy

if TYPE_CHECKING:
    from jaxret.online import (
        availability,
        environment,
        estimators,
        policies,
        preconditioners,
        presets,
        projections,
        query_maps,
        schedules,
        streams,
        wrappers,
    )

__all__ = [
    "availability",
    "environment",
    "estimators",
    "policies",
    "preconditioners",
    "presets",
    "projections",
    "query_maps",
    "schedules",
    "streams",
    "wrappers",
]
__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, ()))
