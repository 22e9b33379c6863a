"""Rankings: the output of retrievers and rerankers, the input of metrics and run files."""

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


def in_trec_order(ranking: Ranking, tie_order: Int[np.ndarray, " I"]) -> Ranking:
    """Sorts lists in the order of trec_eval: by score, and ties by descending id.

    Lists from a search with `jaxret.task.tie_order` are in this order; lists that were reranked or
    read from a file may not be.
    """
    place = np.where(ranking.items < 0, len(tie_order), tie_order[ranking.items])
    order = np.lexsort((place, -ranking.scores), axis=1)
    return Ranking(*(np.take_along_axis(part, order, axis=1) for part in ranking))


def metrics_at(cuts: Sequence[int]) -> tuple[str, ...]:
    """Returns the names of the metrics of `mean_metrics`: recall at each cut, then nDCG."""
    return tuple(f"{metric}@{k}" for metric in ("recall", "ndcg") for k in cuts)


def mean_metrics(
    ranking: Ranking, labels: Int[np.ndarray, "N L"], cuts: Sequence[int]
) -> dict[str, float]:
    """Computes recall and nDCG at the cuts, averaged over queries.

    Args:
      ranking: ranking of the N queries.
      labels: their tools [N, L], padded with -1.
      cuts: each at most k.

    Returns:
      the means by name, recall first.
    """
    values = metrics.evaluate_ranking(ranking.items, labels, cuts)
    return {name: float(np.asarray(values[name], np.float64).mean()) for name in metrics_at(cuts)}
