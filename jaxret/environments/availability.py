"""Changing catalogues: a share of the tools arrives late, leaves, or is absent for a while.

    later(I, share, at=t)              the whole share at once (ORAG, Figure 5)     Algorithm 3
    one_by_one(I, share, first, last)  one tool after the other
    leaving(I, share, at=t)            absent from round t on
    away(I, share, leaves=t, back=u)   absent in rounds t to u - 1

Each returns the ``arrives`` and ``leaves`` of an `jaxret.environments.environment.Environment`:

    Environment(**later(items, 0.5, at=900)._asdict())

The tools of the share are drawn with ``seed``. The row of an absent tool is not updated: a new tool
starts from its row of Theta_1, and a tool that returns continues from its last row.

Letters: I items, P tools of the share.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.runtime.validate import require


class Availability(NamedTuple):
    """The rounds in which tools are available.

    Tool i is available in the rounds ``arrives_i <= t < leaves_i``. If ``leaves_i < arrives_i``, it
    is absent in the rounds ``leaves_i <= t < arrives_i`` and available in all others.
    """

    arrives: Int[np.ndarray, " I"]
    leaves: Int[np.ndarray, " I"]


FOREVER = np.iinfo(np.int32).max


def always(items: int) -> Availability:
    """Make every tool available in every round."""
    return Availability(np.zeros(items, np.int32), np.full(items, FOREVER, np.int32))


def later(items: int, share: float, *, at: int, seed: int = 0) -> Availability:
    """Make a share of the tools available from one round on.

    Args:
      items: I, the size of the catalogue.
      share: share of the tools that arrive late, in [0, 1).
      at: the first round in which they are available, >= 0.
      seed: draws the tools.

    Raises:
      ValueError: if a number is out of range.
    """
    require("at", at, ">= 0", lambda t: t >= 0)
    availability = always(items)
    availability.arrives[_part(items, share, seed)] = at
    return availability


def one_by_one(items: int, share: float, *, first: int, last: int, seed: int = 0) -> Availability:
    """Make the tools of a share available one after the other, evenly spaced in time.

    Args:
      items: I, the size of the catalogue.
      share: share of the tools that arrive late, in [0, 1).
      first: the round in which the first of them arrives, in 0 .. ``last``.
      last: the round in which the last of them arrives.
      seed: draws the tools and their order.

    Raises:
      ValueError: if a number is out of range.
    """
    require("first", first, f"in 0 .. last={last}", lambda t: 0 <= t <= last)
    availability = always(items)
    part = _part(items, share, seed)
    availability.arrives[part] = np.linspace(first, last, len(part)).astype(np.int32)
    return availability


def leaving(items: int, share: float, *, at: int, seed: int = 0) -> Availability:
    """Make a share of the tools absent from one round on.

    Args:
      items: I, the size of the catalogue.
      share: share of the tools that leave, in [0, 1).
      at: the first round without them, >= 0.
      seed: draws the tools.

    Raises:
      ValueError: if a number is out of range.
    """
    require("at", at, ">= 0", lambda t: t >= 0)
    availability = always(items)
    availability.leaves[_part(items, share, seed)] = at
    return availability


def away(items: int, share: float, *, leaves: int, back: int, seed: int = 0) -> Availability:
    """Make a share of the tools absent in the rounds ``leaves <= t < back``.

    Args:
      items: I, the size of the catalogue.
      share: share of the tools that are absent for a while, in [0, 1).
      leaves: the first round without them, in 0 .. ``back`` - 1.
      back: the round in which they are available again.
      seed: draws the tools.

    Raises:
      ValueError: if a number is out of range.
    """
    require("leaves", leaves, f"in 0 .. back - 1 = {back - 1}", lambda t: 0 <= t < back)
    availability, part = always(items), _part(items, share, seed)
    availability.leaves[part], availability.arrives[part] = leaves, back
    return availability


def _part(items: int, share: float, seed: int) -> Int[np.ndarray, " P"]:
    """Draw a share of the items in random order, but never all of them."""
    require("share", share, "in [0, 1)", lambda x: 0 <= x < 1)
    return np.random.default_rng(seed).permutation(items)[: round(share * items)]
