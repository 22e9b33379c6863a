"""What is forgotten while learning: measures of what `experiments.forgetting.follow` found.

Letters: S seeds, E points in time, n queries in order of arrival, m metrics.
"""

import numpy as np
from jaxtyping import Bool, Float, Int


def seen(
    values: Float[np.ndarray, "S E m n"], rounds: Int[np.ndarray, " E"]
) -> Float[np.ndarray, "S E-1 m"]:
    """Mean over the queries that have arrived, from the second point on.

    Args:
      values: by arrival.
      rounds: that were over at each point, beginning with 0.
    """
    parts = [values[:, i, :, :many] for i, many in enumerate(rounds) if many]
    return np.stack([part.mean(axis=-1, dtype=np.float64) for part in parts], axis=1)


def forgotten(
    right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]
) -> Float[np.ndarray, "S E"]:
    """Of the queries that have arrived: the share that was right since, and now is wrong.

    Args:
      right: by arrival.
      rounds: as in `seen`.
    """
    arrived = np.arange(right.shape[-1]) < rounds[:, None]
    ever = np.logical_or.accumulate(right & arrived, axis=1)
    return (ever & ~right).sum(axis=-1) / np.maximum(arrived.sum(axis=-1), 1)


def fates(
    right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]
) -> dict[str, Float[np.ndarray, " S"]]:
    """What became of the queries, as results: `forgotten` and `drop` at the end, and the shares
    ``learnt``, wrong at first and right at the end, and ``lost``, the other way round.

    Args:
      right: by arrival.
      rounds: as in `seen`.
    """
    first, last = right[:, 0], right[:, -1]
    return {
        "learnt": (~first & last).mean(axis=-1),
        "lost": (first & ~last).mean(axis=-1),
        "forgotten": forgotten(right, rounds)[:, -1],
        "drop": drop(right, rounds),
    }


def drop(right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]) -> Float[np.ndarray, "S"]:
    """Forgetting as in Chaudhry et al. (2018), the queries that arrive in one chunk being a task.

    Highest accuracy of a task at a point after it arrived and before the end, less that at the
    end; averaged over the tasks. Negative where the end is best.

    Args:
      right: by arrival.
      rounds: as in `seen`, at least three.
    """
    groups = np.split(right, [many for many in rounds[1:] if many < right.shape[-1]], axis=-1)
    drops = []
    for i, group in enumerate(groups[: len(rounds) - 2]):
        accuracy = group.mean(axis=-1)
        drops.append(accuracy[:, i + 1 : -1].max(axis=1) - accuracy[:, -1])
    return np.mean(drops, axis=0)


def moments(curve: Float[np.ndarray, "S E"]) -> dict[str, Float[np.ndarray, " S"]]:
    """First, middle and last value; ``fall``: how far a value is below an earlier one at most."""
    return {
        "first": curve[:, 0],
        "half": curve[:, (curve.shape[1] - 1) // 2],
        "last": curve[:, -1],
        "fall": (np.maximum.accumulate(curve, axis=1) - curve).max(axis=1),
    }
