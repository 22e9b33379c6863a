"""Families of learners that differ only in numbers, and grids of their settings.

    grid(greedy, tau=[0.02, 0.04], eta=[0.003, 0.01])       the product of the lists: four settings
    paired(greedy, tau=[0.02, 0.04], eta=[0.003, 0.01])     element by element: two
    traced(greedy(tau=0.02))                                the family of one learner, its numbers

A compiled program takes the numbers of a learner as data: all settings of a grid share a program,
and so do two calls with different numbers.

Letters: G settings of n numbers, S seeds.
"""

import inspect
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxret.learners import registry
from jaxret.learners.learner import Learner, require_learner
from jaxret.learners.rank_one import Rule
from jaxret.learners.replay import Replay, with_rule
from jaxret.learners.wrappers import Wrapped


class Family:
    """A function from numbers to a learner, compared by a key.

    Args:
      key: hashable; families with equal keys are equal and share compiled programs.
      make: function from n numbers, which may be traced, to a learner.
    """

    __slots__ = ("key", "make")

    def __init__(self, key: Any, make: Callable[..., Learner]):
        self.key, self.make = key, make

    def __call__(self, *numbers: Any) -> Learner:
        return self.make(*numbers)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Family) and self.key == other.key


class LearnerGrid(NamedTuple):
    """A family of learners, and the settings among which a sweep chooses."""

    name: str  # name of the learners
    family: Family  # function from the numbers of a setting to a learner
    settings: Float[np.ndarray, "G n"]  # [G, n]
    names: tuple[str, ...] = ("tau", "eta")  # names of the n numbers

    # A grid is part of a mixture, which may be a static argument: arrays have no hash.
    def __hash__(self) -> int:
        return hash((self.family, self.settings.tobytes()))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, LearnerGrid) and self.family == other.family
        return same and np.array_equal(self.settings, other.settings)

    def learner(self, g: int) -> Learner:
        """Return the learner with the g-th setting."""
        return self.family(*self.settings[g].tolist())

    def named(self, name: str) -> "LearnerGrid":
        """Return the same grid under another name."""
        family = Family((self.family.key, name), lambda *x: self.family(*x)._replace(name=name))
        return self._replace(name=name, family=family)

    def wrapped(self, wrap: Callable[[Learner], Learner]) -> "LearnerGrid":
        """Return a grid with the same settings whose learners are wrapped.

        Args:
          wrap: function from a learner to a learner; the same function gives the same family.
        """
        family = Family((self.family.key, wrap), lambda *x: wrap(self.family(*x)))
        return self._replace(family=family)

    def columns(self, settings: Float[np.ndarray, "S n"]) -> dict[str, Float[np.ndarray, " S"]]:
        """Return the settings of S seeds as one array per number.

        Returns:
          name -> [S].
        """
        return dict(zip(self.names, settings.T, strict=True))

    def label(self, setting: Float[np.ndarray, " n"]) -> str:
        """Format a setting: ``tau=0.02, eta=0.003``."""
        return ", ".join(f"{name}={x:.3g}" for name, x in zip(self.names, setting, strict=True))


def grid(preset: Callable[..., Learner], **settings: Any) -> LearnerGrid:
    """Make a grid of every combination of settings.

    Args:
      preset: function that makes the learner, such as ``jr.greedy``.
      **settings: settings of the preset; a list of numbers (tau, eta, ..) is an axis of the grid,
        any other value is the same for all.

    Raises:
      ValueError: if ``preset`` makes no learners or refuses a setting, or a setting cannot vary
        within a program.
    """
    _require_factory(preset)
    axes = _axes(preset, settings)
    return _made(preset, settings, axes, list(itertools.product(*axes.values())))


def paired(preset: Callable[..., Learner], **settings: Any) -> LearnerGrid:
    """Make a grid that pairs the lists element by element.

    Args:
      preset: function that makes the learner, such as ``jr.greedy``.
      **settings: lists of equal length, and values that are the same for all settings.

    Raises:
      ValueError: if ``preset`` makes no learners or refuses a setting, a setting cannot vary within
        a program, or the lists differ in length.
    """
    _require_factory(preset)
    axes = _axes(preset, settings)
    if len({len(values) for values in axes.values()}) != 1:
        lengths = {name: len(values) for name, values in axes.items()}
        raise ValueError(f"paired settings must be lists of one length, got {lengths}")
    return _made(preset, settings, axes, list(zip(*axes.values(), strict=True)))


def traced(learner: Learner) -> tuple[Family, tuple[float, ...]]:
    """Split a learner into its family and its numbers.

    The numbers of a preset are its settings with a float default (tau, eta, rate, ..). Any other
    rank-one learner has the numbers tau and eta, and a wrapped learner has the numbers of its
    inner learner. Every other learner has none.

    Raises:
      ValueError: if the argument is not a learner.
    """
    require_learner(learner)
    if learner.facts.origin is not None:
        return _preset_family(learner)
    structure = learner.structure
    rule = structure.rule if isinstance(structure, Replay) else structure
    if isinstance(rule, Rule) and all(isinstance(x, float | int) for x in (rule.tau, rule.eta)):

        def make(tau: Any, eta: Any) -> Learner:
            return with_rule(learner, learner.name, lambda own: own._replace(tau=tau, eta=eta))

        replay = structure[1:] if isinstance(structure, Replay) else None
        key = (rule._replace(tau=0.0, eta=0.0), replay)
        return Family(key, make), (float(rule.tau), float(rule.eta))
    if isinstance(structure, Wrapped) and (wraps := structure.wraps) is not None:
        inner, numbers = traced(structure.inner)
        return Family((inner.key, wraps), lambda *numbers: wraps(inner(*numbers))), numbers
    return Family(learner, lambda: learner), ()


def _preset_family(learner: Learner) -> tuple[Family, tuple[float, ...]]:
    """Return the family of a preset, whose numbers are the settings with a float default."""
    assert learner.facts.origin is not None
    preset, settings = learner.facts.origin
    factory = registry.factories()[preset]
    defaults = {name: x.default for name, x in inspect.signature(factory).parameters.items()}
    given = defaults | registry.parse_settings(settings)
    names = tuple(
        name
        for name, default in defaults.items()
        if isinstance(default, float) and isinstance(given[name], float | int)
    )
    same = {name: value for name, value in given.items() if name not in names}

    def make(*numbers):
        return factory(**same, **dict(zip(names, numbers, strict=True)))

    return Family(_key(factory, same, names), make), tuple(float(given[name]) for name in names)


def _made(
    preset: Callable[..., Learner],
    settings: Mapping[str, Any],
    axes: Mapping[str, tuple[float, ...]],
    points: Sequence[tuple[float, ...]],
) -> LearnerGrid:
    same = {name: value for name, value in settings.items() if name not in axes}

    def make(*values) -> Learner:
        return preset(**same, **dict(zip(axes, values, strict=True)))

    learners = [make(*point) for point in points]  # raises if a setting is out of range
    numbers = np.array(points, np.float64).reshape(len(points), len(axes))
    return LearnerGrid(
        learners[0].name, Family(_key(preset, same, axes), make), numbers, tuple(axes)
    )


def _key(preset: Callable, same: Mapping[str, Any], axes: Iterable[str]) -> Hashable:
    """Return a key equal for equal presets and settings, unique if a setting is not hashable."""
    key = (preset, tuple(sorted(same.items())), tuple(axes))
    try:
        hash(key)
    except TypeError:
        return object()
    return key


def _require_factory(preset: Any) -> None:
    if not callable(preset):
        known = isinstance(preset, Learner)
        got = f"the learner {preset.name}" if known else type(preset).__name__
        raise ValueError(
            f"preset must be a function that makes learners, such as jr.greedy, got {got}"
        )


def _axes(
    preset: Callable[..., Learner], settings: Mapping[str, Any]
) -> dict[str, tuple[float, ...]]:
    """Return the settings that vary, each with its values."""
    return {
        name: _axis(preset, name, values)
        for name, values in settings.items()
        if type(values) in (list, tuple, np.ndarray)  # a Projection is a named tuple
    }


def _axis(preset: Callable[..., Learner], name: str, values: Sequence) -> tuple[float, ...]:
    """Return the values of a setting that is data to the compiled program."""
    parameter = inspect.signature(preset).parameters.get(name)
    whole = parameter is not None and isinstance(parameter.default, int)
    try:
        axis = tuple(map(float, values))
    except (TypeError, ValueError):
        axis = ()
    if whole or (len(values) and not axis):
        raise ValueError(
            f"{name}={list(values)} cannot vary within one program, as numbers such as tau and eta "
            f"can: call sweep once for each {name}"
        )
    if not axis:
        raise ValueError(f"{name} must be a list of one or more numbers, got []")
    return axis
