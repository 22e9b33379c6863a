"""Describes a task in a few numbers, as context for its results.

    print(describe(task))
    deskbank: 168 tools, 168 of them labels, 2,016 queries (1.00 labels each, 12 a tool), ..

Online accuracy depends on these numbers: if static retrieval is accurate, little is left to learn;
if tools have few queries, there are few rewards to learn from; and if queries nearly repeat one
another, memorising them is enough.

Letters: I items, N queries, L labels per query (padded with -1).
"""

from typing import NamedTuple

import numpy as np

from jaxret.data.near_duplicates import near_another
from jaxret.evaluation.evaluate import evaluate
from jaxret.task import Task


class Description(NamedTuple):
    """Numbers that describe a task, which print as one line."""

    name: str
    tools: int  # I, including absent tools
    labelled_tools: int  # tools that are a label of at least one query
    queries: int  # N
    labels_per_query: float  # mean
    queries_per_tool: float  # median over the labelled tools
    near_duplicates: float | None  # share of the queries, in [0, 1]; None: the task has no texts
    accuracy: float | None  # accuracy of static retrieval, in [0, 1]; None: the task has no vectors
    ndcg_at_10: float | None  # nDCG@10 of the same ranking

    def __str__(self) -> str:
        near, right, ndcg = map(_three, (self.near_duplicates, self.accuracy, self.ndcg_at_10))
        return (
            f"{self.name}: {self.tools:,} tools, {self.labelled_tools:,} of them labels, "
            f"{self.queries:,} queries ({self.labels_per_query:.2f} labels each, "
            f"{self.queries_per_tool:g} a tool), near-duplicates {near}, "
            f"static accuracy {right}, static nDCG@10 {ndcg}"
        )

    __repr__ = __str__


def describe(task: Task) -> Description:
    """Count tools, queries and near-duplicates, and measure static retrieval.

    Static retrieval ranks by ``task.theta``; its accuracy is the share of queries whose first tool
    is one of their labels. A query is a near-duplicate if another query of the task has nearly the
    same words (`jaxret.data.near_duplicates`), whatever their labels.

    Args:
      task: a whole task, or the part on which results are reported.

    Raises:
      ValueError: if the task has no queries.
    """
    task.require_queries()
    queries_of = np.bincount(task.labels[task.labels >= 0], minlength=len(task.ids))
    ranked = {}
    if task.theta.shape[1]:
        ranked = evaluate(task.theta, task, ("accuracy", "ndcg@10"))
    return Description(
        name=task.name,
        tools=len(task.ids),
        labelled_tools=int((queries_of > 0).sum()),
        queries=len(task),
        labels_per_query=float(queries_of.sum() / len(task)),
        queries_per_tool=float(np.median(queries_of[queries_of > 0])),
        near_duplicates=None if task.texts is None else float(near_another(task.texts).mean()),
        accuracy=ranked["accuracy"].mean if ranked else None,
        ndcg_at_10=ranked["ndcg@10"].mean if ranked else None,
    )


def _three(value: float | None) -> str:
    return "—" if value is None else f"{value:.3f}"
