"""Streams as units of work that can stop and resume: what happened in every round, and which
setting of a grid validates best.

    setting = choose(unit, grid, simulation, ranker, orders, validation=..)
    recorded = record(unit, simulation, setting, orders, finish)

A `Unit` computes chunk by chunk and keeps what it found, in a run's directory as a rule. Seeds may
have parts of the queries of their own: a mask [N] is the same for all, [S, N] has a line a seed.

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
from jaxret.online.streams import rows_of
from jaxret.task import Task
from jaxret.types import Catalogue, Trace

METRICS = ("accuracy", "recall@{k}", "ndcg@{k}", "completeness@{k}")
Mask: TypeAlias = Bool[np.ndarray, "*S N"]


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
    """Ranks parts of a task's queries by the states of several seeds; compiled once a size."""

    def __init__(self, task: Task, k: int):
        self._arrays = jnp.asarray(task.queries), jnp.asarray(task.labels)

        @partial(jax.jit, static_argnames="scores")
        def score(states, rows, queries, labels, scores):
            def one(state, rows):
                asked, right = queries[rows], labels[rows]  # -1, the last query: left out below
                if scores is None:
                    values = metrics.evaluate(state.theta, asked, right, task.tie_order, k=k)
                else:
                    by = partial(scores, state)
                    values = metrics.evaluate_scores(by, asked, right, task.tie_order, k=k)
                found = jnp.stack([values[name.format(k=k)] for name in METRICS])
                return jnp.where(rows >= 0, found, jnp.nan)

            return sharding.sweep(one, states, rows, mesh=sharding.run_mesh(len(rows)))

        self._score = score

    def __call__(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4"]:
        """Means of `METRICS` over a part of the queries.

        Args:
          states: of a learner, or a `Catalogue`; with an axis of seeds.
          part: which queries, at least one of each seed.
          scores: of the learner; None: by the rows.

        Returns:
          [S, 4].
        """
        return np.nanmean(self.each(states, part, scores).astype(np.float64), axis=-1)

    def each(
        self, states: Any, part: Mask, scores: Scores | None = None
    ) -> Float[np.ndarray, "S 4 n"]:
        """`METRICS` of every query of a part, as they are averaged by a call.

        Returns:
          [S, 4, n], NaN where a seed has fewer than n queries.
        """
        rows = rows_of(np.broadcast_to(part, (len(states.theta), part.shape[-1])))
        return np.asarray(self._score(states, rows, *self._arrays, scores))


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


def choose(
    unit: Unit,
    grid: LearnerGrid,
    simulation: Simulation,
    ranker: Ranker,
    orders: Int[np.ndarray, "S T"],
    *,
    validation: Mask,
) -> Float[np.ndarray, "S n"]:
    """The setting of each seed, as `tune` chooses it; one that is alone needs no stream.

    Returns:
      the numbers of each seed, [S, n].
    """
    if len(grid.settings) == 1:
        return np.tile(grid.settings, (len(orders), 1))
    return tune(unit, grid, simulation, ranker, orders, validation=validation)["setting"]


def tune(
    unit: Unit,
    grid: LearnerGrid,
    simulation: Simulation,
    ranker: Ranker,
    orders: Int[np.ndarray, "S T"],
    *,
    validation: Mask,
    ranked: Mapping[str, Mask] | None = None,
) -> dict[str, np.ndarray]:
    """Streams once for every setting, ranks by the final embeddings, and chooses.

    The setting with the largest nDCG + online success on the validation part is chosen: it should
    serve while it learns and rank well afterwards. Seeds that share a validation part choose
    together, by their mean; seeds with parts of their own choose each for itself, since what
    validates one is reported by another.

    Args:
      unit: computes.
      grid: the G settings.
      simulation: of that grid.
      ranker: of the task.
      orders: the streams of all seeds.
      validation: the queries that choose.
      ranked: name -> other queries that are ranked, and choose nothing.

    Returns:
      ``validation`` and the names of ``ranked``: [G, S, 4], the means of `METRICS`;
      ``online [G, S]``, the success of validation queries in the stream (0 if there are none);
      ``success`` and ``loss``: [G, S], means over the whole stream; ``best [S]``, the position of
      the setting that is chosen, and ``setting [S, n]``, its numbers.
    """
    chunks, ran = simulation.cut(orders), orders >= 0
    blank = np.zeros((len(grid.settings), len(orders), len(METRICS)))
    whose = np.broadcast_to(validation, (len(orders), validation.shape[-1]))
    choosing = np.take_along_axis(whose, orders, axis=1) & ran
    parts = {"validation": validation, **(ranked or {})}
    counted = {  # name -> rounds whose mean it is, of which field
        "online": ("success", choosing),
        "success": ("success", ran),
        "loss": ("loss", ran),
    }

    def start():
        learner = simulation.start(simulation.setting(*grid.settings[0]))
        scores = {
            **{part: blank.copy() for part in parts},
            **{name: blank[..., 0].copy() for name in counted},
        }
        return {"learner": learner, **scores}

    def step(state, done):
        g, number = divmod(done, len(chunks))
        setting = simulation.setting(*grid.settings[g])
        states = state["learner"] if number else simulation.start(setting)
        states, trace = simulation.step(states, setting, chunks[number])
        first = sum(chunk.shape[1] for chunk in chunks[:number])
        for name, (field, rounds) in counted.items():
            here = rounds[:, first : first + chunks[number].shape[1]]
            values = np.asarray(getattr(trace, field), np.float64)[:, : here.shape[1]]
            state[name][g] += (values * here).sum(axis=1) / np.maximum(rounds.sum(axis=1), 1)
        if number == len(chunks) - 1:
            for part, mask in parts.items():
                state[part][g] = ranker(states, mask, simulation.scores)
        return state | {"learner": states}

    def finish(state):
        scores = {name: value for name, value in state.items() if name != "learner"}
        value = state["validation"][..., METRICS.index("ndcg@{k}")] + state["online"]
        if validation.ndim == 1:
            value = np.broadcast_to(value.mean(axis=1, keepdims=True), value.shape)
        best = value.argmax(axis=0)
        return {**scores, "best": best, "setting": grid.settings[best]}

    return unit(
        chunks=len(chunks) * len(grid.settings),
        start=start,
        step=step,
        finish=finish,
        rounds=int(ran.sum()) * len(grid.settings),
    )
