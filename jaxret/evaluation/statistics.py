"""Statistics of clustered values, of repeated tests, and of scores that tell right from wrong.

Values of queries of one tool are correlated, since they share a document and a learnt row.
`per_tool` aggregates paired differences by tool, so that standard errors generalise to other tools.

Letters: N queries, C tools with a query, m tests.
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
      tools: tool of each query [N]; the first one if a query has several.

    Returns:
      One value per tool [C], whose mean equals the mean over queries and whose standard error
      (sample deviation over sqrt(C)) accounts for the clusters.

    Raises:
      ValueError: if there are no values, one is not finite, or ``tools`` has another length.
    """
    values = finite_numbers("values [N]", values)
    tools = np.asarray(tools)
    require("the shape of tools", tools.shape, f"{values.shape}", lambda x: x == values.shape)
    _, cluster = np.unique(tools, return_inverse=True)
    mean, count = values.mean(), cluster.max() + 1
    return mean + count / len(values) * np.bincount(cluster, values - mean)


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
      ValueError: if the shapes differ, a score is NaN, or ``right`` is not a mask.
    """
    right = _bits("right", right)
    scores = real_numbers("scores", scores, right.ndim)
    require("the shape of scores", scores.shape, f"{right.shape}", lambda x: x == right.shape)
    require("scores", scores, "numbers", lambda x: not np.isnan(x).any())
    if right.all() or not right.any():
        return float("nan")
    ranked = stats.mannwhitneyu(scores[right], scores[~right])
    return float(ranked.statistic / (right.sum() * (~right).sum()))


def _bits(name: str, values: Any) -> Bool[np.ndarray, "..."]:
    """Convert True and False, or 1 and 0, to bits."""
    found = np.asarray(values)
    if found.dtype != bool and not np.isin(found, (0, 1)).all():
        raise ValueError(f"{name} must be True or False, got the dtype {found.dtype}")
    return found.astype(bool)
