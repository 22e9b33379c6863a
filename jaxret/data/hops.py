"""Tasks of several tools as their hops: every step a query of its own       (ORAG Algorithm 4).

A planner cuts a task into sub-tasks; here the steps that a data set brings stand for its plan. The
text is that of ORAG's template (C.1.4), so that a step such as 'send it to her' keeps its context.
"""

from dataclasses import replace

import numpy as np

from jaxret.data.dataset import Dataset

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
    places = ((row, place) for row, some in enumerate(steps) for place in range(len(some)))
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
