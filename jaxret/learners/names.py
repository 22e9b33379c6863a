"""Every learner that has a name: the registry of all presets, and a list of them.

    learners()                  what there is, each with a line on what it is
    REGISTRY["greedy"](tau=.05)

A module of presets enters its factories when it is imported; this one imports them all.
"""

from jaxret.learners import bandits, mixture, presets
from jaxret.learners.registry import REGISTRY

__all__ = ["REGISTRY", "Listing", "learners"]
LISTED = (presets, mixture, bandits)  # their factories are in the registry


class Listing(dict[str, str]):
    """Names, each with a line on what it is; prints itself so."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:{width}}  {line}" for name, line in self.items())


def learners() -> Listing:
    """The presets, each with a line on what it is."""
    return Listing((name, (f.__doc__ or "").splitlines()[0]) for name, f in REGISTRY.items())
