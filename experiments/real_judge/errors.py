"""How often, where and how surely a judge is wrong.

Letters: N queries, I tools, B bins.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Calibration(NamedTuple):
    """Pairs by the probability of yes, in bins of equal width."""

    believed: Float[np.ndarray, " B"]  # mean probability of yes; NaN where a bin is empty
    right: Float[np.ndarray, " B"]  # share of pairs whose tool is right
    pairs: Int[np.ndarray, " B"]


def by_rank(
    yes: Float[np.ndarray, "N I"],
    right: Bool[np.ndarray, "N I"],
    scores: Float[np.ndarray, "N I"],
    ranks: int,
) -> Float[np.ndarray, " 1+ranks"]:
    """The share of yes for the right tool, and for each of a query's nearest wrong ones.

    Returns:
      shares [1 + ranks], the right tool's first.
    """
    order = np.argsort(np.where(right, -np.inf, scores), axis=1, kind="stable")[:, ::-1][:, :ranks]
    nearest = np.take_along_axis(yes, order, axis=1)
    return np.concatenate([[(yes[right] > 0.5).mean()], (nearest > 0.5).mean(axis=0)])


def by_tool(
    yes: Float[np.ndarray, "N I"], right: Bool[np.ndarray, "N I"]
) -> tuple[Float[np.ndarray, " I"], Float[np.ndarray, " I"]]:
    """The share of no where a tool is right, and of yes where it is wrong.

    Returns:
      both [I]; NaN for a tool that is never right.
    """
    said = yes > 0.5
    with np.errstate(invalid="ignore"):
        misses = (right & ~said).sum(axis=0) / right.sum(axis=0)
    return misses, (~right & said).sum(axis=0) / (~right).sum(axis=0)


def calibration(
    yes: Float[np.ndarray, "N I"], right: Bool[np.ndarray, "N I"], bins: int = 10
) -> Calibration:
    """How often the tool is right, by what the judge believed."""
    place = np.minimum((yes * bins).astype(int), bins - 1).ravel()
    pairs = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        believed = np.bincount(place, weights=yes.ravel(), minlength=bins) / pairs
        share = np.bincount(place, weights=right.ravel(), minlength=bins) / pairs
    return Calibration(believed, share, pairs)


def best_threshold(yes: Float[np.ndarray, "n I"], right: Bool[np.ndarray, "n I"]) -> float:
    """The threshold whose errors on right and on wrong pairs are fewest together.

    It looks at labels: give it those of the queries that choose settings.
    """
    levels = np.unique(yes)
    misses = np.searchsorted(np.sort(yes[right]), levels, side="right") / right.sum()
    alarms = 1 - np.searchsorted(np.sort(yes[~right]), levels, side="right") / (~right).sum()
    return float(levels[np.argmin(misses + alarms)])
