"""Which differences chance would not give: clustered values, tests by sign flips, several tests.

Values of one tool hang together: its queries read one document, and one row is learnt for all of
them. `per_tool` sums paired differences tool by tool; the mean of what it returns is the mean over
queries, and its standard error holds for other tools, too. And how well a judge tells right from
wrong, or agrees with another judge.

Letters: N queries, C tools that a query needs, m tests.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from jaxret.runtime.validate import require


def per_tool(
    values: Float[np.ndarray, " N"], tools: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " C"]:
    """Gathers the values of queries tool by tool, so that their mean stays.

    Args:
      values: of the queries, paired differences as a rule.
      tools: whose query it is; for several, the first that it needs.

    Returns:
      one value a tool, [C]: their mean is that of the queries, and their standard error (sample
      deviation over sqrt(C)) that of queries which come in clusters.
    """
    values = np.asarray(values, np.float64)
    _, cluster = np.unique(tools, return_inverse=True)
    mean, count = values.mean(), cluster.max() + 1
    return mean + count / len(values) * np.bincount(cluster, values - mean)


def sign_flips(values: Float[np.ndarray, " C"], *, draws: int = 9_999, seed: int = 0) -> float:
    """Tests the mean against 0: two-sided p, were each value as likely with the other sign.

    Args:
      values: independent of one another, such as those of `per_tool`.
      draws: of all signs; the observed ones count among them, so p is at least 1 / (draws + 1).
      seed: of the draws.
    """
    require("draws", draws, ">= 1", lambda n: n >= 1)
    signs = np.random.default_rng(seed).integers(0, 2, (draws, len(values))) * 2.0 - 1.0
    observed, drawn = abs(np.sum(values)), np.abs(signs @ values)
    slack = 1e-9 * np.abs(values).sum()  # sums of equal size in another order
    return float((1 + (drawn >= observed - slack).sum()) / (1 + draws))


def holm(p: Sequence[float]) -> Float[np.ndarray, " m"]:
    """Corrects p-values for there being several tests (Holm 1979).

    Args:
      p: of m tests.

    Returns:
      the corrected p-values [m], in the same order, at most 1.
    """
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")
    sorted_p = np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values))))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(sorted_p, 1.0)
    return corrected


def area_under_roc(scores: Float[np.ndarray, "*N"], right: Bool[np.ndarray, "*N"]) -> float:
    """The chance that what is right scores above what is wrong; ties count half.

    Args:
      scores: of any shape.
      right: of the same shape; NaN comes out where all or none of it is.
    """
    if right.all() or not right.any():
        return float("nan")
    ranked = stats.mannwhitneyu(scores[right], scores[~right])
    return float(ranked.statistic / (right.sum() * (~right).sum()))


def cohens_kappa(one: Bool[np.ndarray, " n"], other: Bool[np.ndarray, " n"]) -> float:
    """How far two judges agree beyond chance (Cohen 1960): 1 is always, 0 as chance would have it.

    0 too where both always say the same word: nothing can then be told from chance.
    """
    agreement, a, b = (one == other).mean(), one.mean(), other.mean()
    chance = a * b + (1 - a) * (1 - b)
    return 0.0 if chance == 1 else float((agreement - chance) / (1 - chance))
