"""Runs a stream and ranks queries at points of it."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

import jaxret as jr
from jaxret.learners.learner import Learner
from jaxret.task import Task


def follow(
    learner: Learner | jr.Run,
    task: Task,
    order: Int[np.ndarray, "S T"],
    part: Bool[np.ndarray, " N"],
    metrics: Sequence[str],
    *,
    seeds: range,
    chunk: int,
    pause: Callable[[int], None],
) -> tuple[Float[np.ndarray, "S E m n"], jr.Run]:
    """Simulates a stream chunk by chunk, and ranks queries before it and after each chunk.

    Args:
      learner: learner, or a run with chosen settings.
      task: task whose queries are streamed and ranked.
      order: order of the stream.
      part: mask of the n queries to rank.
      metrics: the m metrics of each query.
      seeds: S seeds.
      chunk: rounds between two rankings.
      pause: called before each chunk with the rounds so far; raises to stop the run.

    Returns:
      The metrics of every query at E points, and the run of the last chunk.
    """

    def ranked(run):
        values = jr.evaluate_each(run, task, metrics, part=part)
        return np.stack([values[name][:, part] for name in metrics], axis=1)

    nothing = np.full((len(seeds), 1), -1)
    run = jr.simulate(learner, task, order=nothing, seeds=seeds, chunk=chunk)
    found = [ranked(run)]
    for first in range(0, order.shape[1], chunk):
        pause(first)
        some = order[:, first : first + chunk]
        run = jr.simulate(learner, task, order=some, seeds=seeds, chunk=chunk, after=run)
        found.append(ranked(run))
    return np.stack(found, axis=1), run


def points(order: Int[np.ndarray, "S T"], chunk: int) -> Int[np.ndarray, " E"]:
    """Returns the number of finished rounds before a stream and after each of its chunks."""
    return np.append(np.arange(0, order.shape[1], chunk), order.shape[1])


def by_arrival(
    values: Float[np.ndarray, "S E m n"],
    order: Int[np.ndarray, "S T"],
    streamed: Bool[np.ndarray, " N"],
) -> Float[np.ndarray, "S E m n"]:
    """Sorts the queries of each seed by their first arrival in the stream.

    Args:
      values: values of the n streamed queries, in order of their positions.
      order: order of the stream; each exposure has every streamed query once.
      streamed: mask of the streamed queries.
    """
    some = np.flatnonzero(streamed)
    arrival = np.searchsorted(some, order[:, : len(some)])
    return np.take_along_axis(values, arrival[:, None, None, :], axis=-1)
