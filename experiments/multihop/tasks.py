"""Documents found by the hops of a task, while it is streamed and by the final embeddings.

Letters: S seeds, N hops, L labels a hop, T rounds (hops in the stream), V visits (tasks in it).
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.common.figures import curves_figure
from experiments.common.run_directory import RunDirectory
from jaxret.data.dataset import Dataset
from jaxret.evaluation import plots


def found(
    items: Int[np.ndarray, "N k"], labels: Int[np.ndarray, "N L"], tasks: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " V"]:
    """Compute the share of each task's distinct labels among the items of its hops.

    Tasks are in the order of their numbers; -1 pads items and labels.
    """
    _, number = np.unique(tasks, return_inverse=True)
    size = 1 + max(items.max(), labels.max())
    gold, seen = (np.unique((number[:, None] * size + x)[x >= 0]) for x in (labels, items))
    return np.bincount(gold // size, weights=np.isin(gold, seen)) / np.bincount(gold // size)


def by_visit(online: Mapping[str, np.ndarray], hops: Dataset) -> Float[np.ndarray, "S V"]:
    """Compute the share of a task's labels that were used at the right hops, for each visit.

    It reads ``order``, ``item`` and ``success`` [S, T] of a run. The hops of a task are consecutive
    and in one group.
    """
    begins = numbers(hops.groups) == 0
    used = np.where(online["success"] > 0, online["item"], -1)
    return np.stack(
        [
            found(items[:, None], hops.labels[order], np.cumsum(begins[order]))
            for items, order in zip(used, online["order"], strict=True)
        ]
    )


def numbers(tasks: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """Count the hops of each task from 0; the hops of a task are consecutive."""
    begins = np.append(True, tasks[1:] != tasks[:-1])
    rows = np.arange(len(tasks))
    return rows - np.maximum.accumulate(np.where(begins, rows, 0))


def measured(
    online: Mapping[str, np.ndarray], shares: Float[np.ndarray, "S V"], hops: Dataset
) -> dict[str, Float[np.ndarray, " S"]]:
    """Compute means over the stream, as results, with the shares of `by_visit`."""
    quarter, place = max(1, shares.shape[1] // 4), numbers(hops.groups)[online["order"]]
    here = {f"online/hop{i + 1}": place == i for i in range(place.max() + 1)}
    by_position = {key: online["success"].mean(axis=1, where=some) for key, some in here.items()}
    return by_position | {
        "online/accuracy": online["success"].mean(axis=1),
        "online/bits_right": (online["reward"] == online["success"]).mean(axis=1),
        "online/misses": wrong(online, online["success"] > 0),
        "online/false_alarms": wrong(online, online["success"] == 0),
        "online/found": shares.mean(axis=1),
        "online/first": shares[:, :quarter].mean(axis=1),
        "online/last": shares[:, -quarter:].mean(axis=1),
        "online/complete": (shares == 1).mean(axis=1),
    }


def wrong(
    online: Mapping[str, np.ndarray], where: Bool[np.ndarray, "S T"]
) -> Float[np.ndarray, " S"]:
    """Compute the share of wrong rewards among some hops; 0 if there are none."""
    lies = (online["reward"] != online["success"]) & where
    return lies.sum(axis=1) / np.maximum(where.sum(axis=1), 1)


def figures(run: RunDirectory, shares: Mapping[str, Float[np.ndarray, "S V"]]) -> None:
    """Draw ``found.png``, the share found by tasks, averaged over a tenth of the stream.

    If ``frozen`` was run, also draws ``more.png``, the difference to it: both stream the same tasks
    in the same order, so the difficulty of tasks cancels.
    """
    pictures = {"found": ("share of right documents found", shares)}
    if "frozen" in shares:
        more = {name: values - shares["frozen"] for name, values in shares.items()}
        pictures["more"] = ("more found than by frozen", more)
    visits = next(iter(shares.values())).shape[1]
    window = max(1, visits // 10)
    ends = np.arange(window, visits + 1)
    for picture, (label, curves) in pictures.items():
        means = {
            name: plots.running_mean(values, window)[:, window - 1 :]
            for name, values in curves.items()
        }
        curves_figure(run, picture, (f"tasks (means of {window})", label), ends, means)
