"""Streams as units of work that can stop and resume: what happened in every round, and which
setting of a grid validates best.

    recorded = record(unit, simulation, setting, orders, finish)
    tuned = tune(unit, grid, simulation, ranker, orders, validation=.., heldout=..)

A `Unit` computes chunk by chunk and keeps what it found, in a run's directory as a rule.

Letters: N queries, S seeds, T rounds, G settings.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret import metrics, sharding
from jaxret.online.grids import LearnerGrid
from jaxret.online.learner import Scores
from jaxret.online.selection import SelectedSimulation
from jaxret.online.simulation import Simulation
from jaxret.task import Task
from jaxret.types import Catalogue, Trace

METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")
Mask: TypeAlias = Bool[np.ndarray, " N"]


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


class Ranker:
    """Ranks parts of a task's queries by the states of several seeds; compiled once a part."""

    def __init__(self, task: Task, k: int):
        self._task = task

        @partial(jax.jit, static_argnames="scores")
        def score(states, queries, labels, scores):
            def one(state):
                if scores is None:
                    values = metrics.evaluate(state.theta, queries, labels, task.tie_order, k=k)
                else:
                    by = partial(scores, state)
                    values = metrics.evaluate_scores(by, queries, labels, task.tie_order, k=k)
                return jnp.stack([values[name.format(k=k)] for name in METRICS])

            return sharding.sweep(one, states, mesh=sharding.run_mesh(len(states.theta)))

        self._score = score

    def __call__(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4"]:
        """Means of `METRICS` over a part of the queries.

        Args:
          states: of a learner, or a `Catalogue`; with an axis of seeds.
          part: which queries.
          scores: of the learner; None: by the rows.

        Returns:
          [S, 4].
        """
        return self.each(states, part, scores).astype(np.float64).mean(axis=-1)

    def each(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4 n"]:
        """`METRICS` of every query of a part, as they are averaged by a call.

        Returns:
          [S, 4, n].
        """
        queries, labels = self._task.queries[part], self._task.labels[part]
        return np.asarray(self._score(states, queries, labels, scores))


def catalogues(*thetas: Float[np.ndarray, "I d"]) -> Catalogue:
    """Embeddings that nobody learnt, as `Ranker` takes them: one seed each."""
    rows = jnp.stack([jnp.asarray(theta) for theta in thetas])
    return Catalogue(theta=rows, available=jnp.ones(rows.shape[:2], bool))


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
      the fields of `Trace` and ``order``, [S, T]; ``microseconds [S]``, the time of a round
      (NaN where something outside of the program selects); and what ``finish`` gave.
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
        return {
            **trace,
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
        rounds=orders.size,
    )


def tune(
    unit: Unit,
    grid: LearnerGrid,
    simulation: Simulation,
    ranker: Ranker,
    orders: Int[np.ndarray, "S T"],
    *,
    validation: Mask,
    heldout: Mask,
    more: Mapping[str, Mask] | None = None,
) -> dict[str, np.ndarray]:
    """Simulates a stream once for every setting and ranks by the final embeddings.

    Args:
      unit: computes.
      grid: the G settings.
      simulation: of that grid.
      ranker: of the task.
      orders: the streams of all seeds.
      validation: the queries that choose.
      heldout: queries that are ranked beside them, and choose nothing.
      more: name -> other queries that are ranked and choose nothing.

    Returns:
      ``validation``, ``heldout`` and the names of ``more``: [G, S, 4], the means of `METRICS`;
      ``online [G, S]``, the success of validation queries in the stream (0 if there are none);
      ``success`` and ``loss``: [G, S], means over the whole stream; and ``best``, the setting with
      the largest nDCG + online success on the validation part: it should serve while it learns and
      rank well afterwards.
    """
    chunks = simulation.cut(orders)
    blank = np.zeros((len(grid.settings), len(orders), len(METRICS)))
    counted = validation[orders]
    total = np.maximum(counted.sum(axis=1), 1)
    parts = {"validation": validation, "heldout": heldout, **(more or {})}

    def start():
        learner = simulation.start(simulation.setting(*grid.settings[0]))
        scores = {
            **{part: blank.copy() for part in parts},
            **{name: blank[..., 0].copy() for name in ("online", "success", "loss")},
        }
        return {"learner": learner, **scores}

    def step(state, done):
        g, number = divmod(done, len(chunks))
        setting = simulation.setting(*grid.settings[g])
        states = state["learner"] if number else simulation.start(setting)
        states, trace = simulation.step(states, setting, chunks[number])
        first = sum(chunk.shape[1] for chunk in chunks[:number])
        choosing = counted[:, first : first + chunks[number].shape[1]]
        whole = {"success": trace.success, "loss": trace.loss}
        whole = {k: np.asarray(x, np.float64)[:, : choosing.shape[1]] for k, x in whole.items()}
        state["online"][g] += (whole["success"] * choosing).sum(axis=1) / total
        for key, values in whole.items():
            state[key][g] += values.sum(axis=1) / orders.shape[1]
        if number == len(chunks) - 1:
            for part, mask in parts.items():
                state[part][g] = ranker(states, mask, simulation.scores)
        return state | {"learner": states}

    def finish(state):
        ndcg = state["validation"][..., METRICS.index("ndcg@{k}")]
        scores = {name: value for name, value in state.items() if name != "learner"}
        return {**scores, "best": (ndcg + state["online"]).mean(axis=1).argmax()}

    return unit(
        chunks=len(chunks) * len(grid.settings),
        start=start,
        step=step,
        finish=finish,
        rounds=orders.size * len(grid.settings),
    )
