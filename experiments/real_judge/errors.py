"""Errors of a judge: by tool, by rank, and by its probability.

Letters: N queries, I tools, B bins.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Calibration(NamedTuple):
    """Pairs by their probability of yes, in bins of equal width.

    Attributes:
      predicted: mean probability of yes [B]; NaN for an empty bin.
      right: share of pairs whose tool is right [B]; NaN for an empty bin.
      pairs: number of pairs [B].
    """

    predicted: Float[np.ndarray, " B"]
    right: Float[np.ndarray, " B"]
    pairs: Int[np.ndarray, " B"]


def by_rank(
    yes: Float[np.ndarray, "N I"],
    right: Bool[np.ndarray, "N I"],
    scores: Float[np.ndarray, "N I"],
    ranks: int,
) -> Float[np.ndarray, " 1+ranks"]:
    """Computes the share of yes for the right tool, and for each of the nearest wrong tools.

    Args:
      yes: probability of yes [N, I].
      right: whether the tool is the query's [N, I].
      scores: scores of the tools [N, I]; the larger, the nearer.
      ranks: number of wrong tools per query.

    Returns:
      shares [1 + ranks], that of the right tool first.
    """
    order = np.argsort(np.where(right, -np.inf, scores), axis=1, kind="stable")[:, ::-1][:, :ranks]
    nearest = np.take_along_axis(yes, order, axis=1)
    return np.concatenate([[(yes[right] > 0.5).mean()], (nearest > 0.5).mean(axis=0)])


def by_tool(
    yes: Float[np.ndarray, "N I"], right: Bool[np.ndarray, "N I"]
) -> tuple[Float[np.ndarray, " I"], Float[np.ndarray, " I"]]:
    """Computes the misses and false alarms of each tool.

    Args:
      yes: probability of yes [N, I].
      right: whether the tool is the query's [N, I].

    Returns:
      the share of no among the queries for which a tool is right [I], NaN for a tool that is never
      right; and the share of yes among the others [I].
    """
    accepted = yes > 0.5
    with np.errstate(invalid="ignore"):
        misses = (right & ~accepted).sum(axis=0) / right.sum(axis=0)
    return misses, (~right & accepted).sum(axis=0) / (~right).sum(axis=0)


def calibration(
    yes: Float[np.ndarray, "N I"], right: Bool[np.ndarray, "N I"], bins: int = 10
) -> Calibration:
    """Computes how often the tool is right, by the probability of yes.

    Args:
      yes: probability of yes [N, I].
      right: whether the tool is the query's [N, I].
      bins: B.
    """
    place = np.minimum((yes * bins).astype(int), bins - 1).ravel()
    pairs = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(place, weights=yes.ravel(), minlength=bins) / pairs
        share = np.bincount(place, weights=right.ravel(), minlength=bins) / pairs
    return Calibration(predicted, share, pairs)


def best_threshold(yes: Float[np.ndarray, "n I"], right: Bool[np.ndarray, "n I"]) -> float:
    """Returns the threshold with the smallest sum of the rates of misses and false alarms.

    It depends on labels: give it queries that are not reported.

    Args:
      yes: probability of yes [n, I].
      right: whether the tool is the query's [n, I].
    """
    levels = np.unique(yes)
    misses = np.searchsorted(np.sort(yes[right]), levels, side="right") / right.sum()
    alarms = 1 - np.searchsorted(np.sort(yes[~right]), levels, side="right") / (~right).sum()
    return float(levels[np.argmin(misses + alarms)])
