"""Tasks of several tools as their hops: every step a query of its own       (ORAG Algorithm 4).

A planner cuts a task into sub-tasks. Here the plan is

    as_hops        the steps that a data set brings
    by_evidence    one hop for every right item, in the words of the whole task
    by_plan        the sub-questions that somebody else has thought of

The text is that of ORAG's template (C.1.4), so that a step such as 'send it to her' keeps its
context.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxret.data.dataset import Dataset, Step

TEMPLATE = "Context: {query} | Focus: {step}"


def as_hops(dataset: Dataset, *, template: str = TEMPLATE) -> Dataset:
    """The steps of all queries, those of a query one after the other and in one group.

    Args:
      dataset: a query without steps is left out.
      template: of a hop's text, from ``query`` and ``step``.

    Raises:
      ValueError: if no query has steps.
    """
    steps = dataset.steps or ()
    places = ((row, place) for row, one in enumerate(steps) for place in range(len(one)))
    hops = [(row, place, *steps[row][place]) for row, place in places]
    if not hops:
        raise ValueError(f"{dataset.name} has no queries with steps: there is nothing to plan")
    rows, numbers, texts, labels = zip(*hops, strict=True)
    return replace(
        dataset,
        query_ids=tuple(f"{dataset.query_ids[i]}.{j}" for i, j in zip(rows, numbers, strict=True)),
        queries=tuple(
            template.format(query=dataset.queries[row], step=text)
            for row, text in zip(rows, texts, strict=True)
        ),
        labels=np.array(labels, np.int32)[:, None],
        groups=np.unique(rows, return_inverse=True)[1].astype(np.int32),
        split=None if dataset.split is None else tuple(dataset.split[row] for row in rows),
        steps=None,
    )


def by_evidence(dataset: Dataset) -> Dataset:
    """As many hops as a query has labels, in their order, each with one of them.

    For data sets without steps: no planner says what a hop is after, so all hops of a query have
    its text, and only what they count as right differs.

    Raises:
      ValueError: if no query has two labels.
    """
    if dataset.labels.shape[1] < 2:
        raise ValueError(f"{dataset.name} has one label a query: there is nothing to plan")
    steps = tuple(
        tuple(Step(query=text, label=int(item)) for item in right if item >= 0)
        for text, right in zip(dataset.queries, dataset.labels, strict=True)
    )
    return as_hops(replace(dataset, steps=steps), template="{query}")


def by_plan(
    dataset: Dataset, plans: Sequence[Sequence[str]], *, template: str = TEMPLATE
) -> Dataset:
    """The sub-questions of all queries as hops.

    Which of a query's labels a sub-question is after, nobody says: every hop has them all.

    Args:
      dataset: N queries.
      plans: of each query, at least one sub-question.
      template: as in `as_hops`.
    """
    lengths = [len(plan) for plan in plans]
    if len(lengths) != len(dataset.queries) or not all(lengths):
        raise ValueError(
            f"{dataset.name} has {len(dataset.queries)} queries, each needs a plan of at least one "
            f"sub-question, got {len(lengths)} plans, the shortest of {min(lengths, default=0)}"
        )
    steps = tuple(tuple(Step(query=text, label=-1) for text in plan) for plan in plans)
    hops = as_hops(replace(dataset, steps=steps), template=template)
    return replace(hops, labels=np.repeat(dataset.labels, lengths, axis=0))
