"""From the config group `environment` to what answers: bits that lie, rerankers, tools that come
and go."""

import inspect
from collections.abc import Mapping
from typing import Any

from jaxret.online import availability
from jaxret.online.environment import Environment, label_noise, simulated_reranker

PRESENCE = {
    f.__name__: f
    for f in (availability.later, availability.one_by_one, availability.leaving, availability.away)
}
RERANKERS = {"simulated": simulated_reranker}
_TIMES = ("at", "first", "last", "leaves", "back")  # in a config: shares of the stream


def build(spec: Mapping[str, Any], *, items: int, rounds: int, seed: int) -> Environment:
    """Reads ``cfg.environment``.

    Args:
      spec: ``noise_rate``; ``reranker`` and ``presence``, each null or a name with its settings.
      items: I, of the catalogue.
      rounds: T, of the stream: the config gives times as shares of it.
      seed: draws who is there.

    Raises:
      ValueError: for anything it does not know.
    """
    known = {"noise_rate", "reranker", "presence"}
    if unknown := set(spec) - known:
        raise ValueError(f"environment: unknown {sorted(unknown)}; known: {sorted(known)}")
    environment = label_noise(spec["noise_rate"]) if spec["noise_rate"] else Environment()
    if spec["reranker"] is not None:
        reranker = _part("reranker", RERANKERS, spec["reranker"])
        environment = environment._replace(reranker=reranker)
    if spec["presence"] is not None:
        times = {key: value for key, value in spec["presence"].items() if key in _TIMES}
        if wrong := {key: value for key, value in times.items() if not 0 <= value <= 1}:
            raise ValueError(f"environment: times are shares of the stream in [0, 1], got {wrong}")
        rounded = {key: round(value * rounds) for key, value in times.items()}
        settings = {**spec["presence"], **rounded, "items": items, "seed": seed}
        presence = _part("presence", PRESENCE, settings)
        environment = environment._replace(**presence._asdict())
    return environment


def _part(kind: str, table: Mapping[str, Any], spec: Mapping[str, Any]) -> Any:
    arguments = dict(spec)
    name = arguments.pop("name", None)
    if name not in table:
        raise ValueError(f"environment: unknown {kind} {name!r}; known: {', '.join(table)}")
    try:
        inspect.signature(table[name]).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"environment: {kind} {name!r}: {error}") from error
    return table[name](**arguments)
