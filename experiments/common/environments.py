"""Makes environments from a config."""

from collections.abc import Mapping
from typing import Any

import jaxret as jr
from jaxret.environments import availability
from jaxret.environments.environment import Environment
from jaxret.runtime.validate import from_registry

AVAILABILITY = {
    f.__name__: f
    for f in (availability.later, availability.one_by_one, availability.leaving, availability.away)
}
RERANKERS = {"simulated": jr.simulated_reranker}
_SETTINGS: dict[str, Any] = {"noise_rate": 0.0, "reranker": None, "availability": None}
_TIMES = ("at", "first", "last", "leaves", "back")


def environment_of(spec: Mapping[str, Any], *, items: int, rounds: int, seed: int) -> Environment:
    """Make the environment that ``environment=NAME`` stands for.

    Args:
      spec: ``noise_rate``, a number; ``reranker`` and ``availability``, each None, a name, or a
        mapping of ``name`` and settings. Times are shares of the stream, in [0, 1].
      items: I, the size of the catalogue.
      rounds: T, the length of the stream.
      seed: seed of the tools that arrive or leave.
    """
    if unknown := sorted(set(spec) - set(_SETTINGS)):
        raise ValueError(f"environment: unknown {unknown}; known: {', '.join(_SETTINGS)}")
    settings = _SETTINGS | dict(spec)
    noise_rate = settings["noise_rate"]
    environment = jr.label_noise(noise_rate) if noise_rate else Environment()
    if settings["reranker"] is not None:
        reranker = from_registry("environment", "reranker", RERANKERS, settings["reranker"])
        environment = environment._replace(reranker=reranker)
    if (given := settings["availability"]) is not None:
        given = dict(given) if isinstance(given, Mapping) else {"name": given}
        times = {key: value for key, value in given.items() if key in _TIMES}
        if wrong := {key: value for key, value in times.items() if not 0 <= value <= 1}:
            raise ValueError(f"environment: times are shares of the stream in [0, 1], got {wrong}")
        given |= {key: round(share * rounds) for key, share in times.items()}
        given |= {"items": items, "seed": seed}
        found = from_registry("environment", "availability", AVAILABILITY, given)
        environment = environment._replace(**found._asdict())
    return environment
