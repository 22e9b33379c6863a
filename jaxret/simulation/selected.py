"""Rounds in which something outside the program picks from what is shown.

A reranker with a network of its own, a language model or a judge cannot run inside the compiled
stream: here each round is two compiled halves (`jaxret.simulation.scan`), with the `Selector`
between them, for all runs at once.

Letters: R runs, c rounds a chunk.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np
from jaxtyping import Int

from jaxret.environments.environment import Environment
from jaxret.learners.learner import Learner
from jaxret.runtime import distributed
from jaxret.simulation.engine import CHUNK, Simulation
from jaxret.simulation.scan import learn, show_slate
from jaxret.task import Task
from jaxret.types import Selector, State, Stream, Trace


class SelectedSimulation(Simulation):
    """A simulation in which ``select`` picks from every slate; the rest as `Simulation`."""

    def __init__(
        self,
        make: Callable[..., Learner],
        task: Task,
        environment: Environment | Callable[..., Environment] | None = None,
        *,
        select: Selector,
        seeds: Sequence[int],
        example: Sequence[float] = (),
        chunk: int = CHUNK,
    ):
        super().__init__(make, task, environment, seeds=seeds, example=example, chunk=chunk)
        self._select = select
        self._show = jax.jit(partial(self._over_runs, partial(self._half, show_slate)))
        self._learn = jax.jit(partial(self._over_runs, partial(self._half, learn)))

    @property
    def how(self) -> str:
        return "round by round, selected outside"

    def cut(self, orders: Int[np.ndarray, "R T"]) -> list[Int[np.ndarray, "R c"]]:
        """Chunks; the last one is as long as it is."""
        orders = orders.astype(np.int32)
        return [orders[:, i : i + self.chunk] for i in range(0, orders.shape[1], self.chunk)]

    def _chunk(self, states, numbers, order) -> tuple[State, Trace]:
        lines = []
        for queries in order.T:
            slate = self._show(self._arrays, states, numbers, self._seeds, queries)
            picked = self._select(queries, np.asarray(distributed.fetch(slate.items)))
            picked = jax.tree.map(distributed.agreed, picked)
            position, reward = picked if isinstance(picked, tuple) else (picked, None)
            states, line = self._learn(
                self._arrays, states, numbers, self._seeds, queries, slate, position, reward
            )
            lines.append(jax.tree.map(np.asarray, distributed.fetch(line)))
        return states, jax.tree.map(lambda *x: np.stack(x, axis=1), *lines)

    def _half(self, part, arrays, state, setting, seed, query, *answer):
        _, queries, labels, _ = arrays
        stream = Stream(queries=queries, labels=labels, order=query)
        world = (self._world(setting), stream, query, jax.random.key(seed))
        return part(self._make(*setting), state, *world, *answer)


def simulation_with(
    select: Selector | None, make: Callable[..., Learner], *args, **given
) -> Simulation:
    """A simulation whose slates a selector picks from; None leaves that to the environment."""
    if select is None:
        return Simulation(make, *args, **given)
    return SelectedSimulation(make, *args, select=select, **given)
