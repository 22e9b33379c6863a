"""A stream as a unit of work that can stop and resume: what happened in every round.

    recorded = record(unit, simulation, setting, orders, finish)

A `Unit` computes chunk by chunk and keeps what it found, in a run's directory as a rule.

Letters: S seeds, T rounds, n settings.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxret.simulation.engine import Simulation
from jaxret.simulation.selected import SelectedSimulation
from jaxret.types import Trace


class Unit(Protocol):
    """Computes a result chunk by chunk, or reads it if it is finished.

    Args:
      chunks: how many steps it takes.
      start: makes the state: a pytree of arrays whose shapes do not change.
      step: (state, number of the chunk) -> state.
      finish: state -> arrays to keep.
      keep_state: whether the last state is kept too.
      rounds: how many there are in all.
    """

    def __call__(
        self,
        *,
        chunks: int,
        start: Callable[[], Any],
        step: Callable[[Any, int], Any],
        finish: Callable[[Any], Mapping[str, Any]],
        keep_state: bool = False,
        rounds: int = 0,
    ) -> dict[str, np.ndarray]: ...


def record(
    unit: Unit,
    simulation: Simulation,
    setting: Float[np.ndarray, "S n"],
    orders: Int[np.ndarray, "S T"],
    finish: Callable[[Any], Mapping[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Simulates a stream, records every round and keeps the last state.

    Args:
      unit: computes.
      simulation: of the learner.
      setting: the numbers of each seed.
      orders: the stream of each seed.
      finish: the last states -> more to keep.

    Returns:
      the fields of `Trace` and ``order``, [S, T]: NaN where a seed's stream has ended before
      another's, its items and order -1; ``microseconds [S]``, the time of a round (NaN where
      something outside of the program selects); and what ``finish`` gave.
    """
    chunks, rounds = simulation.cut(orders), orders.shape[1]

    def start():
        states = simulation.start(setting)
        length = sum(chunk.shape[1] for chunk in chunks)
        kinds = dict.fromkeys(Trace._fields, np.float32) | {"item": np.int32}
        trace = Trace._make(np.zeros((len(orders), length), kind) for kind in kinds.values())
        return {"learner": states, "trace": trace}

    def step(state, number):
        states, trace = simulation.step(state["learner"], setting, chunks[number])
        first = sum(chunk.shape[1] for chunk in chunks[:number])
        for whole, part in zip(state["trace"], trace, strict=True):
            whole[:, first : first + part.shape[1]] = part
        return {"learner": states, "trace": state["trace"]}

    def done(state):
        seconds = math.nan
        if not isinstance(simulation, SelectedSimulation):
            begin = time.perf_counter()  # the first chunk once more: compiled, on the clock
            again = simulation.step(simulation.start(setting), setting, chunks[0])
            jax.block_until_ready(again)
            seconds = time.perf_counter() - begin
        trace = {key: x[:, :rounds] for key, x in state["trace"]._asdict().items()}
        nothing = {key: -1 if key == "item" else np.nan for key in trace}
        return {
            **{key: np.where(orders >= 0, x, nothing[key]) for key, x in trace.items()},
            **finish(state["learner"]),
            "order": orders,
            "microseconds": np.full(len(orders), 1e6 * seconds / (chunks[0] >= 0).sum()),
        }

    return unit(
        chunks=len(chunks),
        start=start,
        step=step,
        finish=done,
        keep_state=True,
        rounds=int((orders >= 0).sum()),
    )
