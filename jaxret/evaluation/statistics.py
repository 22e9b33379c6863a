"""Statistical tests for clustered and repeated comparisons, and agreement of judges.

Values of queries of one tool are correlated, since they share a document and a learnt row.
`per_tool` aggregates paired differences by tool, so that standard errors generalise to other tools.

Letters: N queries, C tools with a query, m tests, n verdicts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from jaxret.runtime.validate import finite_numbers, real_numbers, require


def per_tool(
    values: Float[np.ndarray, " N"], tools: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " C"]:
    """Aggregate the values of queries tool by tool without changing their mean.

    Args:
      values: values of the queries [N], usually paired differences.
      tools: tool of each query [N]; the first of several.

    Returns:
      One value per tool [C], whose mean equals the mean over queries and whose standard error
      (sample deviation over sqrt(C)) accounts for the clusters.

    Raises:
      ValueError: if a value is not finite, there is none, or there are more or fewer tools.
    """
    values = finite_numbers("values [N]", values)
    tools = np.asarray(tools)
    require("the shape of tools", tools.shape, f"{values.shape}", lambda x: x == values.shape)
    _, cluster = np.unique(tools, return_inverse=True)
    mean, count = values.mean(), cluster.max() + 1
    return mean + count / len(values) * np.bincount(cluster, values - mean)


def sign_flips(values: Float[np.ndarray, " C"], *, draws: int = 9_999, seed: int = 0) -> float:
    """Compute the two-sided p-value of a mean of 0 by flipping signs at random.

    Args:
      values: independent values [C], such as those of `per_tool`.
      draws: number of random sign vectors; the observed signs count as one more, so
        p >= 1 / (draws + 1).
      seed: seed of the draws.

    Raises:
      ValueError: for less than one draw, and if a value is not finite or there is none.
    """
    require("draws", draws, ">= 1", lambda n: n >= 1)
    values = finite_numbers("values [C]", values)
    signs = np.random.default_rng(seed).integers(0, 2, (draws, len(values))) * 2.0 - 1.0
    observed, permuted = abs(np.sum(values)), np.abs(signs @ values)
    slack = 1e-9 * np.abs(values).sum()  # rounding of equal sums in another order
    return float((1 + (permuted >= observed - slack).sum()) / (1 + draws))


def holm(p: Sequence[float]) -> Float[np.ndarray, " m"]:
    """Correct p-values for the number of tests (Holm 1979).

    Returns:
      the corrected p-values [m], in the same order, at most 1.

    Raises:
      ValueError: if a value is not in [0, 1].
    """
    values = real_numbers("p [m]", p, 1)
    require("p-values", values, "in [0, 1]", lambda x: ((x >= 0) & (x <= 1)).all())
    order = np.argsort(values, kind="stable")
    sorted_p = np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values))))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(sorted_p, 1.0)
    return corrected


def area_under_roc(scores: Float[np.ndarray, "*N"], right: Bool[np.ndarray, "*N"]) -> float:
    """Compute the probability that a right item scores above a wrong one; ties count half.

    Returns:
      the area, NaN where all or none are right.

    Raises:
      ValueError: if the shapes differ, a score is NaN, or ``right`` is no mask.
    """
    right = _bits("right", right)
    scores = real_numbers("scores", scores, right.ndim)
    require("the shape of scores", scores.shape, f"{right.shape}", lambda x: x == right.shape)
    require("scores", scores, "numbers", lambda x: not np.isnan(x).any())
    if right.all() or not right.any():
        return float("nan")
    ranked = stats.mannwhitneyu(scores[right], scores[~right])
    return float(ranked.statistic / (right.sum() * (~right).sum()))


def cohens_kappa(one: Bool[np.ndarray, " n"], other: Bool[np.ndarray, " n"]) -> float:
    """Compute the agreement of two judges beyond chance (Cohen 1960): 1 is full, 0 is chance.

    Returns:
      kappa; 0 where both judges give the same verdict every time.

    Raises:
      ValueError: if the judges gave no verdicts or different numbers of them, or verdicts that are
        not bits.
    """
    one, other = _bits("verdicts", one), _bits("verdicts", other)
    require("the shape of verdicts", other.shape, f"{one.shape}", lambda x: x == one.shape)
    require("the number of verdicts", one.size, ">= 1", lambda n: n >= 1)
    agreement, a, b = (one == other).mean(), one.mean(), other.mean()
    chance = a * b + (1 - a) * (1 - b)
    return 0.0 if chance == 1 else float((agreement - chance) / (1 - chance))


def _bits(name: str, values: Any) -> Bool[np.ndarray, "..."]:
    """Convert True and False, or 1 and 0, to bits."""
    found = np.asarray(values)
    if found.dtype != bool and not np.isin(found, (0, 1)).all():
        raise ValueError(f"{name} must be True or False, got the dtype {found.dtype}")
    return found.astype(bool)
