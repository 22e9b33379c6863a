"""A learner up to its numbers: what runs as one program, for sweeps, choices and mixtures.

    grid(greedy, tau=[0.02, 0.04], eta=[0.003, 0.01])       the product of the lists, four settings
    paired(greedy, tau=[0.02, 0.04], eta=[0.003, 0.01])     number by number, two

Letters: G settings of n numbers, S seeds.
"""

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxret.learners.learner import Learner


class LearnerGrid(NamedTuple):
    """A learner up to its numbers, and the settings among which they are chosen."""

    name: str
    make: Callable[..., Learner]  # numbers of a setting -> Learner; they may be traced
    settings: Float[np.ndarray, "G n"]
    names: tuple[str, ...] = ("tau", "eta")  # of the n numbers

    # A mixture's forms are part of a learner, which may be a static argument: arrays have no hash.
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def learner(self, g: int) -> Learner:
        """The learner with the g-th setting."""
        return self.make(*self.settings[g].tolist())

    def columns(self, settings: Float[np.ndarray, "S n"]) -> dict[str, Float[np.ndarray, " S"]]:
        """Settings, as they were chosen for S seeds, number by number.

        Returns:
          name -> [S].
        """
        return dict(zip(self.names, settings.T, strict=True))

    def said(self, setting: Float[np.ndarray, " n"]) -> str:
        """A setting in words: ``tau=0.02, eta=0.003``."""
        return ", ".join(f"{name}={x:.3g}" for name, x in zip(self.names, setting, strict=True))


def grid(preset: Callable[..., Learner], **settings: Any) -> LearnerGrid:
    """The learners that a preset makes of every combination of settings.

    Args:
      preset: makes the learner: ``greedy``, or a function of one's own.
      **settings: of the preset; a list is an axis of the grid (numbers such as tau and eta), the
        rest is the same for all.

    Raises:
      ValueError: for a setting that the preset refuses, or one that cannot vary within a program.
    """
    axes = _axes(preset, settings)
    return _made(preset, settings, axes, list(itertools.product(*axes.values())))


def paired(preset: Callable[..., Learner], **settings: Any) -> LearnerGrid:
    """The learners that a preset makes of its lists, number by number: the firsts, the seconds, ..

    Args:
      preset: as in `grid`.
      **settings: as in `grid`, lists of one length.

    Raises:
      ValueError: as `grid`; and for lists of several lengths.
    """
    axes = _axes(preset, settings)
    if len({len(values) for values in axes.values()}) != 1:
        lengths = {name: len(values) for name, values in axes.items()}
        raise ValueError(f"paired settings must be lists of one length, got {lengths}")
    return _made(preset, settings, axes, list(zip(*axes.values(), strict=True)))


def _made(
    preset: Callable[..., Learner],
    settings: Mapping[str, Any],
    axes: Mapping[str, tuple[float, ...]],
    points: Sequence[tuple[float, ...]],
) -> LearnerGrid:
    same = {name: value for name, value in settings.items() if name not in axes}

    def make(*values) -> Learner:
        return preset(**same, **dict(zip(axes, values, strict=True)))

    learners = [make(*point) for point in points]  # refuses what is out of range
    numbers = np.array(points, np.float64).reshape(len(points), len(axes))
    return LearnerGrid(learners[0].name, make, numbers, tuple(axes))


def _axes(
    preset: Callable[..., Learner], settings: Mapping[str, Any]
) -> dict[str, tuple[float, ...]]:
    """The settings that vary, each with its values."""
    return {
        name: _axis(preset, name, values)
        for name, values in settings.items()
        if type(values) in (list, tuple, np.ndarray)  # a Projection is a named tuple
    }


def _axis(preset: Callable[..., Learner], name: str, values: Sequence) -> tuple[float, ...]:
    """The values of a setting that is data to the compiled program."""
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
