"""Runs a stream and ranks queries at points of it: what each query has while a learner learns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxret.simulation.engine import Simulation
from jaxret.simulation.ranker import Mask, Ranker
from jaxret.simulation.recording import Unit


def follow(
    unit: Unit,
    simulation: Simulation,
    setting: Float[np.ndarray, "S 2"],
    order: Int[np.ndarray, "S T"],
    ranker: Ranker,
    part: Mask,
    finish: Callable[[Any], Mapping[str, np.ndarray]] = lambda states: {},
) -> dict[str, np.ndarray]:
    """Simulates a stream as a unit, and ranks before it and after each of its chunks.

    Args:
      unit: computes.
      simulation: of the learner.
      setting: its numbers.
      order: of the stream.
      ranker: of the problem.
      part: the n queries that are ranked.
      finish: last states -> more arrays to keep.

    Returns:
      ``values [S, E, 4, n]``, `METRICS` of every query at E points, and what ``finish`` gave.
    """
    chunks = simulation.cut(order)

    def start():
        states = simulation.start(setting)
        first = ranker.each(states, part, simulation.scores)
        values = np.zeros((first.shape[0], len(chunks) + 1, *first.shape[1:]), first.dtype)
        values[:, 0] = first
        return {"learner": states, "values": values}

    def step(state, number):
        states, _ = simulation.step(state["learner"], setting, chunks[number])
        state["values"][:, number + 1] = ranker.each(states, part, simulation.scores)
        return state | {"learner": states}

    def done(state):
        return {"values": state["values"], **finish(state["learner"])}

    return unit(chunks=len(chunks), start=start, step=step, finish=done, rounds=order.size)


def points(order: Int[np.ndarray, "S T"], chunk: int) -> Int[np.ndarray, " E"]:
    """Rounds that were over before a stream and after each of its chunks."""
    return np.append(np.arange(0, order.shape[1], chunk), order.shape[1])


def by_arrival(
    values: Float[np.ndarray, "S E m n"],
    order: Int[np.ndarray, "S T"],
    streamed: Mask,
) -> Float[np.ndarray, "S E m n"]:
    """Puts the queries of each seed into the order in which its stream first has them.

    Args:
      values: of the n streamed queries, in order of their positions.
      order: of the stream; each exposure has every streamed query once.
      streamed: which of all queries are streamed.
    """
    some = np.flatnonzero(streamed)
    arrival = np.searchsorted(some, order[:, : len(some)])
    return np.take_along_axis(values, arrival[:, None, None, :], axis=-1)
