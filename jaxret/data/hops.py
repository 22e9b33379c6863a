"""Divides questions that need several tools into hops, each a query (ORAG, Algorithm 4).

The papers call such a question a task; here a `jaxret.task.Task` is a catalogue with its queries.
A hop is one step of a plan. The plan consists of

    as_hops        the steps in the data set
    by_evidence    one hop for every label, with the text of the whole question
    by_plan        sub-questions from elsewhere, such as a language model

A hop's text follows ORAG's template (C.1.4), which quotes the question, so that a step such as
'send it to her' keeps its context.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxret.data.dataset import Dataset, Step

TEMPLATE = "Context: {query} | Focus: {step}"


def as_hops(dataset: Dataset, *, template: str = TEMPLATE) -> Dataset:
    """Make a query of every step; the steps of a query are successive and form one group.

    Args:
      dataset: data set, of which queries without steps are left out.
      template: template of a hop's text, with the placeholders ``query`` and ``step``.

    Raises:
      ValueError: if no query has steps.
    """
    steps = dataset.steps or ()
    pairs = ((row, place) for row, one in enumerate(steps) for place in range(len(one)))
    hops = [(row, place, *steps[row][place]) for row, place in pairs]
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
    """Make one hop for each label of a query, in the order of the labels.

    This is for data sets without steps. All hops of a query have the text of the query, and differ
    only in their label.

    Raises:
      ValueError: if no query has two labels.
    """
    if dataset.labels.shape[1] < 2:
        raise ValueError(f"{dataset.name} has one label per query: there is nothing to plan")
    steps = tuple(
        tuple(Step(query=text, label=int(item)) for item in right if item >= 0)
        for text, right in zip(dataset.queries, dataset.labels, strict=True)
    )
    return as_hops(replace(dataset, steps=steps), template="{query}")


def by_plan(dataset: Dataset, plans: Sequence[Sequence[str]]) -> Dataset:
    """Make a hop of every sub-question.

    It is unknown which label of a query answers a sub-question, so every hop has all labels.

    Args:
      dataset: data set of N queries.
      plans: N lists of at least one sub-question.

    Raises:
      ValueError: if the number of plans is not N, or a plan is empty.
    """
    lengths = [len(plan) for plan in plans]
    if len(lengths) != len(dataset.queries) or not all(lengths):
        raise ValueError(
            f"{dataset.name} has {len(dataset.queries)} queries, each needs a plan of at least one "
            f"sub-question, got {len(lengths)} plans, the shortest of {min(lengths, default=0)}"
        )
    steps = tuple(tuple(Step(query=text, label=-1) for text in plan) for plan in plans)
    hops = as_hops(replace(dataset, steps=steps))
    return replace(hops, labels=np.repeat(dataset.labels, lengths, axis=0))
