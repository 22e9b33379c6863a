"""When tools are there: a part of the catalogue comes late, leaves, or is away for a while.

    later(I, share, at=t)              all of the part at once: the paper's Figure 5     Algorithm 3
    one_by_one(I, share, first, last)  one after the other
    leaving(I, share, at=t)            gone from round t on
    away(I, share, leaves=t, back=u)   gone, and back again

Each gives ``arrives`` and ``leaves [I]`` as `jaxret.environments.environment.Environment` takes
them. The part is drawn by a seed. A row that is not there does not move, so a tool begins (and
begins again) with the row it had: its document's or Tool2Vec's, whatever Theta_1 holds.

Letters: I items.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.runtime.validate import require


class Availability(NamedTuple):
    """Item i is there in the rounds ``arrives_i <= t < leaves_i``, or not in between if they are
    the other way round."""

    arrives: Int[np.ndarray, " I"]
    leaves: Int[np.ndarray, " I"]


FOREVER = np.iinfo(np.int32).max


def always(items: int) -> Availability:
    """Everyone, from the first round to the last."""
    return Availability(np.zeros(items, np.int32), np.full(items, FOREVER, np.int32))


def later(items: int, share: float, *, at: int, seed: int = 0) -> Availability:
    """A part of the tools is there from round ``at`` on only."""
    require("at", at, ">= 0", lambda t: t >= 0)
    availability = always(items)
    availability.arrives[_part(items, share, seed)] = at
    return availability


def one_by_one(items: int, share: float, *, first: int, last: int, seed: int = 0) -> Availability:
    """A part of the tools arrives in the rounds from ``first`` to ``last``, evenly spread."""
    require("first", first, f"in 0 .. last={last}", lambda t: 0 <= t <= last)
    availability = always(items)
    part = _part(items, share, seed)
    availability.arrives[part] = np.linspace(first, last, len(part)).astype(np.int32)
    return availability


def leaving(items: int, share: float, *, at: int, seed: int = 0) -> Availability:
    """A part of the tools is gone from round ``at`` on."""
    require("at", at, ">= 0", lambda t: t >= 0)
    availability = always(items)
    availability.leaves[_part(items, share, seed)] = at
    return availability


def away(items: int, share: float, *, leaves: int, back: int, seed: int = 0) -> Availability:
    """A part of the tools is gone in the rounds ``leaves <= t < back``."""
    require("leaves", leaves, f"in 0 .. back - 1 = {back - 1}", lambda t: 0 <= t < back)
    availability, part = always(items), _part(items, share, seed)
    availability.leaves[part], availability.arrives[part] = leaves, back
    return availability


def _part(items: int, share: float, seed: int) -> Int[np.ndarray, " P"]:
    """A random part, in random order; never all of the items."""
    require("share", share, "in [0, 1)", lambda x: 0 <= x < 1)
    return np.random.default_rng(seed).permutation(items)[: round(share * items)]


REGISTRY = {f.__name__: f for f in (later, one_by_one, leaving, away)}
