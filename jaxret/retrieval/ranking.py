"""Rankings: the output of retrievers and rerankers, the input of metrics and run files."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int32

from jaxret.evaluation import metrics


class Ranking(NamedTuple):
    """The k best items of each of N queries, best first, on the host.

    A row with fewer than k items ends in -1 with the score minus infinity.
    """

    items: Int32[np.ndarray, "N k"]  # rows of the catalogue
    scores: Float32[np.ndarray, "N k"]


def trec_order(tool_ids: Sequence[str]) -> Int[np.ndarray, "I"]:
    """Rank tools of equal scores as trec_eval does: by descending id (bytes of the UTF-8 string).

    Returns:
      the position of each tool among tools of equal scores [I], 0 first.

    Raises:
      ValueError: if an id occurs twice, because the order of the two is then undefined.
    """
    if twice := [name for name, count in Counter(tool_ids).items() if count > 1]:
        raise ValueError(f"tool ids must differ, but {twice[:5]} occur more than once")
    descending = sorted(range(len(tool_ids)), key=lambda i: tool_ids[i].encode(), reverse=True)
    place = np.empty(len(tool_ids), np.int32)
    place[descending] = np.arange(len(tool_ids))
    return place


def in_trec_order(ranking: Ranking, order: Int[np.ndarray, " I"]) -> Ranking:
    """Sort lists as trec_eval does: by score, and equal scores by descending id.

    Returns:
      the same items, in another order where scores are equal.
    """
    place = np.where(ranking.items < 0, len(order), order[ranking.items])
    rows = np.lexsort((place, -ranking.scores), axis=1)
    return Ranking(*(np.take_along_axis(part, rows, axis=1) for part in ranking))


def metrics_at(cuts: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the metrics of `mean_metrics`: recall at each cut, then nDCG."""
    return tuple(f"{metric}@{k}" for metric in ("recall", "ndcg") for k in cuts)


def mean_metrics(
    ranking: Ranking, labels: Int[np.ndarray, "N L"], cuts: Sequence[int]
) -> dict[str, float]:
    """Compute recall and nDCG at the cuts, averaged over queries.

    Args:
      ranking: ranking of the N queries.
      labels: their tools [N, L], padded with -1.
      cuts: each at most k.

    Returns:
      the means by name, recall first.
    """
    values = metrics.evaluate_ranking(ranking.items, labels, cuts)
    return {name: float(np.asarray(values[name], np.float64).mean()) for name in metrics_at(cuts)}
