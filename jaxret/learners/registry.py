"""How a learner was made: the name of its preset and its settings, as JSON can hold them.

An index on disk holds this in place of functions (`jaxret.serving.files`).
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from jaxret.learners.learner import Learner
from jaxret.rules import projections
from jaxret.rules.projections import Projection

P = ParamSpec("P")
REGISTRY: dict[
    str, Callable[..., Learner]
] = {}  # name -> factory, as `jaxret.learners.presets` has


def preset(factory: Callable[P, Learner]) -> Callable[P, Learner]:
    """Enters a factory in the registry; what it makes knows where it comes from."""

    name = getattr(factory, "__name__", "")

    @functools.wraps(factory)
    def made(*args: P.args, **settings: P.kwargs) -> Learner:
        learner = factory(*args, **settings)
        return learner._replace(origin=_origin(name, settings))

    REGISTRY[name] = made
    return made


def remade(name: str, origin: tuple[str, str] | None) -> Learner:
    """Makes a learner again.

    Args:
      name: of the learner.
      origin: `Learner.origin` of it.

    Raises:
      ValueError: for one that no preset makes under this name.
    """
    preset, settings = origin or ("", "{}")
    if preset in REGISTRY:
        learner = REGISTRY[preset](**_revived(settings))
        if learner.name == name:
            return learner
    raise ValueError(f"learner {name!r} is no preset, and must be given")


def _origin(name: str, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """What JSON can hold of a call; None where it cannot. Text, so that learners can be hashed."""
    words: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Projection):
            words[key] = {"projection": value.name, "radius": value.radius}
        elif value is None or isinstance(value, int | float | str):
            words[key] = value
        else:
            return None
    return name, json.dumps(words)


def _revived(settings: str) -> dict[str, Any]:
    """The settings that `Learner.origin` holds, as arguments of the preset."""

    def argument(value):
        if not isinstance(value, Mapping):
            return value
        radius = {} if value["radius"] is None else {"radius": value["radius"]}
        return projections.REGISTRY[value["projection"]](**radius)

    return {key: argument(value) for key, value in json.loads(settings).items()}
