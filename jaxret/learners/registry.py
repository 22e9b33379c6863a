"""Presets by name: every learner that `jr.learners()` lists.

    learners()                  the presets, each with the first line of its docstring
    factories()["greedy"](tau=.05)

A preset returns the same object for the same settings. Its learners store the preset's name and the
settings: an index on disk saves these in place of functions (`jaxret.serving.files`), and learners
that differ only in numbers share a compiled program (`jaxret.learners.grid.traced`).
"""

import functools
import importlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from jaxret.learners.learner import Learner
from jaxret.rules import projections
from jaxret.rules.projections import Projection
from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import as_number

P = ParamSpec("P")
REGISTRY: dict[str, Callable[..., Learner]] = {}  # name -> factory, filled by `preset`
MODULES = ("presets", "mixture", "oracle", "bandits")  # modules that register presets


def preset(factory: Callable[P, Learner]) -> Callable[P, Learner]:
    """Register a factory of learners under its name.

    Args:
      factory: function from settings, as keywords with defaults, to a learner.

    Returns:
      The factory; its learners have ``facts.origin``, and equal settings give the same object.
    """
    name, signature = getattr(factory, "__name__", ""), inspect.signature(factory)

    @memoized
    @functools.wraps(factory)
    def made(*args: P.args, **settings: P.kwargs) -> Learner:
        learner = factory(*args, **settings)
        given = signature.bind(*args, **settings).arguments
        facts = learner.facts._replace(origin=_origin(name, given))
        return learner._replace(facts=facts)

    @functools.wraps(factory)
    def of_numbers(*args: P.args, **settings: P.kwargs) -> Learner:
        return made(*map(as_number, args), **{key: as_number(x) for key, x in settings.items()})

    REGISTRY[name] = of_numbers
    return of_numbers


def factories() -> dict[str, Callable[..., Learner]]:
    """Return every preset by its name."""
    for module in MODULES:
        importlib.import_module(f"jaxret.learners.{module}")
    return REGISTRY


class Listing(dict[str, str]):
    """Names, each with a line of description, that print as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:{width}}  {line}" for name, line in self.items())


def learners() -> Listing:
    """List the presets, each with the first line of its docstring."""
    return Listing(
        (name, (factory.__doc__ or "").splitlines()[0]) for name, factory in factories().items()
    )


def restore(name: str, origin: tuple[str, str] | None) -> Learner:
    """Restore a learner from its origin.

    Raises:
      ValueError: if no preset makes a learner of this name.
    """
    preset, settings = origin or ("", "{}")
    if preset in factories():
        learner = REGISTRY[preset](**parse_settings(settings))
        if learner.name == name:
            return learner
    raise ValueError(f"learner {name!r} is not a preset, and must be given")


def _origin(name: str, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the settings as hashable JSON; None if a setting is not representable in JSON."""
    words: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Projection):
            words[key] = {"projection": value.name, "radius": value.radius}
        elif value is None or isinstance(value, int | float | str):
            words[key] = value
        else:
            return None
    return name, json.dumps(words)


def parse_settings(settings: str) -> dict[str, Any]:
    """Parse the settings of an origin into arguments of the preset."""

    def argument(value):
        if not isinstance(value, Mapping):
            return value
        radius = {} if value["radius"] is None else {"radius": value["radius"]}
        return getattr(projections, value["projection"])(**radius)

    return {key: argument(value) for key, value in json.loads(settings).items()}
