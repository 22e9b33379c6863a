"""In which order queries come: exposures, and the hops of tasks that take several tools.

Orders are positions into the queries; they are made on the host, once, and are data to the
compiled simulation.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from jaxret.runtime.validate import require


def exposures(n: int, times: int, seed: int) -> Int[np.ndarray, " T"]:
    """Each of n queries ``times`` times, shuffled anew each time   (ORAG C.3).

    One exposure is a deployment that sees each query once; several are the paper's
    'multiple exposure', which is closer to training in epochs.

    Args:
      n: different queries, >= 1.
      times: E, >= 1.
      seed: of the shuffles.

    Returns:
      positions [E n].
    """
    require("n", n, ">= 1", lambda x: x >= 1)
    require("times", times, ">= 1", lambda x: x >= 1)
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(n) for _ in range(times)]).astype(np.int32)


def hops(task: Int[np.ndarray, " N"], times: int, seed: int) -> Int[np.ndarray, " T"]:
    """Orders tasks at random, the sub-queries of each one after the other   (Algorithm 4).

    Algorithm 4 is Algorithm 1 on this stream: an update after every hop. Only the accounting
    is by task (`by_task`).

    Args:
      task: the task of each sub-query [N]; equal numbers stand together, in order of the hops.
      times: E, how often each task comes, >= 1; shuffled anew each time.
      seed: of the shuffles.

    Returns:
      positions [E N].

    Raises:
      ValueError: where the sub-queries of a task do not stand together, or ``times`` is below 1.
    """
    require("times", times, ">= 1", lambda x: x >= 1)
    task = np.asarray(task)
    starts = np.flatnonzero(np.r_[True, task[1:] != task[:-1]])
    if len(np.unique(task)) != len(starts):
        raise ValueError("the sub-queries of a task must stand together: sort them by task first")
    runs = np.split(np.arange(len(task), dtype=np.int32), starts[1:])
    rng = np.random.default_rng(seed)
    return np.concatenate([runs[i] for _ in range(times) for i in rng.permutation(len(runs))])


def orders(
    streamed: Bool[np.ndarray, "*S N"],
    times: int,
    seeds: Sequence[int],
    task: Int[np.ndarray, " N"] | None = None,
) -> Int[np.ndarray, "S T"]:
    """Each seed's own order of some of the queries; hops of one task one after the other.

    Args:
      streamed: which queries; the same for all seeds, or a line a seed.
      times: E, how often each comes.
      seeds: S numbers.
      task: of each query, where they are hops (`hops`).

    Returns:
      positions [S, T]; -1 where a seed's stream has ended before another's.
    """

    def order(rows, seed):
        rows = rows[rows >= 0]
        if task is None:
            return rows[exposures(len(rows), times, seed)]
        return rows[hops(task[rows], times, seed)]

    rows = rows_of(np.broadcast_to(streamed, (len(seeds), streamed.shape[-1])))
    return _stacked([order(some, seed) for some, seed in zip(rows, seeds, strict=True)])


def rows_of(masks: Bool[np.ndarray, "S N"]) -> Int[np.ndarray, "S n"]:
    """The positions that are marked, of each seed; -1 fills up the shorter ones.

    Returns:
      [S, n].
    """
    return _stacked([np.flatnonzero(mask) for mask in masks])


def _stacked(rows: Sequence[Int[np.ndarray, " n"]]) -> Int[np.ndarray, "S n"]:
    longest = max(map(len, rows))
    fill = [(0, longest - len(some)) for some in rows]
    return np.stack([np.pad(x, by, constant_values=-1) for x, by in zip(rows, fill, strict=True)])


def by_task(values: np.ndarray, task: np.ndarray) -> np.ndarray:
    """Whether all hops of a task succeeded: [T] bits and the task of each -> [tasks] of 0 or 1.

    Tasks come out in the order of their numbers. Of a task that comes more than once, every time
    must succeed: cut the stream into its exposures first.
    """
    tasks, position = np.unique(task, return_inverse=True)
    failed = np.zeros(len(tasks))
    np.add.at(failed, position, 1.0 - np.asarray(values, np.float64))
    return (failed == 0).astype(np.float64)
