"""The learner stops, and goes on from yesterday's snapshot: what it learnt since is lost.

    from_snapshot(saved=800, at=1000)     in round 1000 it is again as it was when round 800 began

Answers that are under way reach the learner that goes on. A snapshot from before documents were
rewritten has the rows of before.
"""

from typing import NamedTuple

from jaxtyping import Array, Int

from jaxret.runtime.validate import require


class Restart(NamedTuple):
    """Two rounds: before which one the state is kept, and before which it comes back."""

    saved: int | Int[Array, ""]
    at: int | Int[Array, ""]


def from_snapshot(*, saved: int, at: int) -> Restart:
    """The state in which round ``saved`` >= 0 began comes back before round ``at`` > ``saved``."""
    require("saved", saved, ">= 0", lambda t: t >= 0)
    require("at", at, f"> saved={saved}", lambda t: t > saved)
    return Restart(saved, at)
