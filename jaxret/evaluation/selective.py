"""The risk of the surest answers, and whether probabilities are calibrated.

    risk_coverage(scores, right)       share of wrong answers among the surest n, for n = 1 .. N
    by_decile(p, right)                predicted and observed share of right answers

Letters: N answers.
"""

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float

from jaxret.runtime.validate import require_length


def risk_coverage(
    scores: Float[ArrayLike, " N"], right: Bool[ArrayLike, " N"]
) -> Float[np.ndarray, " N"]:
    """Compute the share of wrong answers among the surest n, for each n.

    Answers of equal scores count with the mean of their group, as if drawn in a random order. The
    mean of the curve is the area under it (El-Yaniv and Wiener 2010).

    Args:
      scores: larger for answers that are thought right [N].
      right: whether each answer is right [N].

    Returns:
      risk [N] at the coverages 1 / N, 2 / N, .., 1.
    """
    scores, right = _both(scores, right)
    _, group = np.unique(-scores, return_inverse=True)
    sizes = np.bincount(group)
    wrong = np.repeat(np.bincount(group, ~right) / sizes, sizes)  # surest first
    return np.cumsum(wrong) / np.arange(1, len(scores) + 1)


class Calibrated(NamedTuple):
    """Answers of one tenth of the predictions."""

    predicted: Float[np.ndarray, " 10"]  # mean probability
    happened: Float[np.ndarray, " 10"]  # share of right answers


def by_decile(p: Float[ArrayLike, " N"], right: Bool[ArrayLike, " N"]) -> Calibrated:
    """Compare predicted with observed shares of right answers, in ten equal parts by prediction.

    For a test that is valid sequentially see `jaxret.theory.calibration`.

    Args:
      p: predicted probabilities [N], N >= 10.
      right: whether each answer is right [N].
    """
    p, right = _both(p, right)
    parts = np.array_split(np.argsort(p, kind="stable"), 10)
    return Calibrated(
        np.array([p[rows].mean() for rows in parts]),
        np.array([right[rows].mean() for rows in parts]),
    )


def _both(
    scores: Float[ArrayLike, " N"], right: Bool[ArrayLike, " N"]
) -> tuple[Float[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    scores, right = np.asarray(scores, np.float64), np.asarray(right, bool)
    require_length("right", right, len(scores))
    return scores, right
