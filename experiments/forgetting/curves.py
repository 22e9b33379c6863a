"""Measures of forgetting, from the rankings of `experiments.forgetting.follow`.

Letters: S seeds, E points in time, n queries in order of arrival, m metrics.
"""

import numpy as np
from jaxtyping import Bool, Float, Int


def seen(
    values: Float[np.ndarray, "S E m n"], rounds: Int[np.ndarray, " E"]
) -> Float[np.ndarray, "S E-1 m"]:
    """Averages over the queries that have arrived, from the second point on.

    Args:
      values: value of each query, in order of arrival.
      rounds: number of finished rounds at each point, beginning with 0.
    """
    parts = [values[:, i, :, :many] for i, many in enumerate(rounds) if many]
    return np.stack([part.mean(axis=-1, dtype=np.float64) for part in parts], axis=1)


def forgotten(
    right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]
) -> Float[np.ndarray, "S E"]:
    """Computes the share of arrived queries that were right since their arrival and now are wrong.

    Args:
      right: whether the first item is right, in order of arrival.
      rounds: number of finished rounds at each point, beginning with 0.
    """
    arrived = np.arange(right.shape[-1]) < rounds[:, None]
    ever = np.logical_or.accumulate(right & arrived, axis=1)
    return (ever & ~right).sum(axis=-1) / np.maximum(arrived.sum(axis=-1), 1)


def fates(
    right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]
) -> dict[str, Float[np.ndarray, " S"]]:
    """Computes `forgotten` and `drop` at the end, and the shares ``learnt`` and ``lost``.

    Learnt queries are wrong at first and right at the end, lost queries the reverse.

    Args:
      right: whether the first item is right, in order of arrival.
      rounds: number of finished rounds at each point, beginning with 0.
    """
    first, last = right[:, 0], right[:, -1]
    return {
        "learnt": (~first & last).mean(axis=-1),
        "lost": (first & ~last).mean(axis=-1),
        "forgotten": forgotten(right, rounds)[:, -1],
        "drop": drop(right, rounds),
    }


def drop(right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]) -> Float[np.ndarray, "S"]:
    """Computes forgetting as in Chaudhry et al. (2018), with the queries of a chunk as a task.

    It is the highest accuracy of a task at a point after its arrival and before the end, minus that
    at the end, averaged over tasks. It is negative if the end is best.

    Args:
      right: whether the first item is right, in order of arrival.
      rounds: number of finished rounds at each point, beginning with 0; at least three points.
    """
    groups = np.split(right, [many for many in rounds[1:] if many < right.shape[-1]], axis=-1)
    drops = []
    for i, group in enumerate(groups[: len(rounds) - 2]):
        accuracy = group.mean(axis=-1)
        drops.append(accuracy[:, i + 1 : -1].max(axis=1) - accuracy[:, -1])
    return np.mean(drops, axis=0)


def moments(curve: Float[np.ndarray, "S E"]) -> dict[str, Float[np.ndarray, " S"]]:
    """Returns first, middle and last value, and ``fall``, the largest decrease."""
    return {
        "first": curve[:, 0],
        "half": curve[:, (curve.shape[1] - 1) // 2],
        "last": curve[:, -1],
        "fall": (np.maximum.accumulate(curve, axis=1) - curve).max(axis=1),
    }
