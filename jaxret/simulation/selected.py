"""Simulations in which a `Selector` outside the program chooses from each slate.

A large reranker, a language model or a judge cannot run inside a compiled stream. Each round is two
compiled halves (`jaxret.simulation.scan`) with the selector between them, for all runs at once.

Letters: R runs, c rounds per chunk.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from jaxret.runtime import distributed
from jaxret.simulation import scan
from jaxret.simulation.engine import Data, Program, Simulation, join_environment, over_runs
from jaxret.types import Selector, State, Stream, Trace


class SelectedSimulation(Simulation):
    """A `Simulation` in which ``select`` chooses from every slate.

    Args:
      *args: positional arguments of `Simulation`.
      select: chooses from the slates of all runs.
      **settings: keyword arguments of `Simulation`.
    """

    def __init__(self, *args: Any, select: Selector, **settings: Any):
        super().__init__(*args, **settings)
        self._select = select

    @property
    def form(self) -> str:
        """Name of the form in which rounds are simulated."""
        return "round by round, selected outside"

    def cut(self, orders: Int[np.ndarray, "R T"]) -> list[Int[np.ndarray, "R c"]]:
        """Cut streams into chunks; the last one may be shorter, since chunks are not compiled."""
        orders = orders.astype(np.int32)
        return [orders[:, i : i + self.chunk] for i in range(0, orders.shape[1], self.chunk)]

    def _chunk(self, states, numbers, order) -> tuple[State, Trace]:
        lines, data = [], (self._program, self._data)
        for queries in order.T:
            slate = _show(*data, states, numbers, self._seeds, queries)
            picked = self._select(queries, np.asarray(distributed.fetch(slate.items)))
            picked = jax.tree.map(distributed.agreed, picked)
            position, reward = picked if isinstance(picked, tuple) else (picked, None)
            answer = (slate, position, reward)
            states, line = _learn(*data, states, numbers, self._seeds, queries, *answer)
            lines.append(jax.tree.map(np.asarray, distributed.fetch(line)))
        return states, jax.tree.map(lambda *x: np.stack(x, axis=1), *lines)


@partial(jax.jit, static_argnames="program")
def _show(program: Program, data: Data, *args):
    return over_runs(program, partial(_half, scan.show, program, data), *args)


@partial(jax.jit, static_argnames="program")
def _learn(program: Program, data: Data, *args):
    return over_runs(program, partial(_half, scan.learn, program, data), *args)


def _half(half, program: Program, data: Data, state, numbers, seed, query, *answer):
    """Run one half of a round of one run."""
    stream = Stream(data.queries, data.labels, query, data.prior)
    environment = join_environment(data.environment, program.environment)
    learner = program.family(*numbers)
    return half(learner, state, environment, stream, query, jax.random.key(seed), *answer)
