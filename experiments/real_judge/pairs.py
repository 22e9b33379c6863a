"""The task that was judged, the verdicts on it, and what they make of an environment.

Letters: N queries, I tools.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from experiments.common.loading import TextTask
from experiments.real_judge.table import JudgeTable
from jaxret.data.masks import draw_parts
from jaxret.environments.environment import Environment, judged


class Pairs(NamedTuple):
    """The task that was judged, and the verdicts in its order."""

    task: TextTask
    yes: Float[np.ndarray, "N I"]
    right: Bool[np.ndarray, "N I"]


def joined(task: TextTask, table: JudgeTable) -> Pairs:
    """The first tools of which every pair has been asked, and the queries that one of them answers.

    Raises:
      ValueError: if there are fewer than two such tools, or one is not in the catalogue.
    """
    if unknown := sorted(set(table.tools) - set(task.ids)):
        raise ValueError(f"the table has tools that {task.name} lacks: {', '.join(unknown[:5])}")
    places = {query: n for n, query in enumerate(task.dataset.query_ids)}
    rows = np.array([places[query] for query in table.queries])
    columns = np.array([task.ids.index(tool) for tool in table.tools])
    position = np.full(len(task.ids) + 1, len(columns), np.int32)
    position[columns] = np.arange(len(columns))
    labels = position[task.labels[rows, :1]]
    asked = np.isfinite(table.yes)
    whole = [m for m in range(1, len(columns) + 1) if asked[labels[:, 0] < m, :m].all()]
    tools = max(whole, default=0)
    if tools < 2:
        raise ValueError(
            f"the table has all verdicts on {tools} of {len(columns)} tools: two are needed"
        )
    columns, kept = columns[:tools], labels[:, 0] < tools
    some, labels = task.select(rows[kept]), labels[kept]
    some = replace(
        some,
        ids=tuple(task.ids[row] for row in columns),
        theta=task.theta[columns],
        documents=tuple(task.documents[row] for row in columns),
        labels=labels,
    )
    right = labels == np.arange(tools)
    return Pairs(some, table.yes[kept][:, :tools], right)


def parted(pairs: Pairs, share: float, seed: int) -> tuple[Pairs, Pairs]:
    """Queries on which a threshold is chosen, and all others, by question."""
    apart = draw_parts(pairs.task.groups, share, 0.5, seed).validation
    some, rest = (
        Pairs(pairs.task.select(rows), pairs.yes[rows], pairs.right[rows])
        for rows in (apart, ~apart)
    )
    return some, rest


def environment(pairs: Pairs, kind: str, threshold: float) -> Environment:
    """What rewards a learner."""
    if kind == "labels":
        return Environment()
    if kind == "soft":
        return judged(pairs.yes)
    return judged(pairs.yes > (threshold if kind == "threshold" else 0.5))
