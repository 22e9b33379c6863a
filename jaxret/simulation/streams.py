"""Orders of a stream: exposures, and the hops of tasks that take several tools.

An order is an array of positions of queries, made once on the host; it is data to the compiled
simulation.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from jaxret.runtime.validate import require


def exposures(n: int, times: int, seed: int) -> Int[np.ndarray, " T"]:
    """Orders n queries ``times`` times, reshuffled each time   (ORAG C.3).

    One exposure is a deployment that sees each query once; several are the paper's
    'multiple exposure', which is closer to training in epochs.

    Args:
      n: number of queries, >= 1.
      times: E, number of times that each query is streamed, >= 1.
      seed: seed of the shuffles.

    Returns:
      Positions [E n].
    """
    require("n", n, ">= 1", lambda x: x >= 1)
    require("times", times, ">= 1", lambda x: x >= 1)
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(n) for _ in range(times)]).astype(np.int32)


def hops(task: Int[np.ndarray, " N"], times: int, seed: int) -> Int[np.ndarray, " T"]:
    """Orders tasks at random, with the sub-queries of each task consecutive   (Algorithm 4).

    Algorithm 4 is Algorithm 1 on this stream, with an update after every hop; only successes are
    counted by task (`by_task`).

    Args:
      task: task of each sub-query [N]; the sub-queries of a task are consecutive, in hop order.
      times: E, number of times that each task is streamed, >= 1; reshuffled each time.
      seed: seed of the shuffles.

    Returns:
      Positions [E N].

    Raises:
      ValueError: if the sub-queries of a task are not consecutive, or ``times`` is below 1.
    """
    require("times", times, ">= 1", lambda x: x >= 1)
    task = np.asarray(task)
    starts = np.flatnonzero(np.r_[True, task[1:] != task[:-1]])
    if len(np.unique(task)) != len(starts):
        raise ValueError("the sub-queries of a task must be consecutive: sort them by task")
    runs = np.split(np.arange(len(task), dtype=np.int32), starts[1:])
    rng = np.random.default_rng(seed)
    return np.concatenate([runs[i] for _ in range(times) for i in rng.permutation(len(runs))])


def orders(
    streamed: Bool[np.ndarray, "*S N"],
    times: int,
    seeds: Sequence[int],
    task: Int[np.ndarray, " N"] | None = None,
) -> Int[np.ndarray, "S T"]:
    """Orders the streamed queries for each seed, with the hops of a task consecutive.

    Args:
      streamed: mask of the queries to stream, [N], or one row per seed [S, N].
      times: E, number of times that each query is streamed.
      seeds: S seeds.
      task: task of each query, if the queries are hops; None: they are not.

    Returns:
      Positions [S, T], padded with -1.
    """

    def order(rows, seed):
        rows = rows[rows >= 0]
        if task is None:
            return rows[exposures(len(rows), times, seed)]
        return rows[hops(task[rows], times, seed)]

    rows = rows_of(np.broadcast_to(streamed, (len(seeds), streamed.shape[-1])))
    return _stacked([order(some, seed) for some, seed in zip(rows, seeds, strict=True)])


def rows_of(masks: Bool[np.ndarray, "S N"]) -> Int[np.ndarray, "S n"]:
    """Returns the positions marked in each row of masks, padded with -1.

    Returns:
      [S, n].
    """
    return _stacked([np.flatnonzero(mask) for mask in masks])


def _stacked(rows: Sequence[Int[np.ndarray, " n"]]) -> Int[np.ndarray, "S n"]:
    longest = max(map(len, rows))
    fill = [(0, longest - len(some)) for some in rows]
    return np.stack([np.pad(x, by, constant_values=-1) for x, by in zip(rows, fill, strict=True)])


def by_task(values: np.ndarray, task: np.ndarray) -> np.ndarray:
    """Computes whether all hops of each task succeeded: [T] bits -> [tasks] bits.

    Results are in the order of the task numbers. If a task is streamed several times, all its hops
    must succeed every time; to count exposures separately, cut the stream first.
    """
    tasks, position = np.unique(task, return_inverse=True)
    failed = np.zeros(len(tasks))
    np.add.at(failed, position, 1.0 - np.asarray(values, np.float64))
    return (failed == 0).astype(np.float64)
