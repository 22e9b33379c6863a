"""Simulations that write the log of a live system: one file per seed, chunk by chunk.

    simulate(with_exploration(greedy()), train, seeds=3, log="logs")       logs/seed_0.jsonl, ..

For learners that show one item per round the `Trace` has everything that a log needs; slates of
several items are recorded in the plain scan. Rounds already in a log are not written again, so a
run that is interrupted and resumed leaves the same log as an uninterrupted one.

Letters: R runs, c rounds per chunk, k items shown.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret import logs
from jaxret.environments.environment import (
    Environment,
    available_at,
    effects_with,
    intervenes,
    queries_at,
)
from jaxret.environments.interventions import learner_state
from jaxret.learners.grid import Family
from jaxret.learners.learner import Learner, query_for
from jaxret.learners.rank_one import position_probabilities
from jaxret.logs import LogWriter
from jaxret.runtime import distributed
from jaxret.simulation.engine import SimulateRounds, Simulation
from jaxret.simulation.scan import learn, learner_query_at, show
from jaxret.task import Task
from jaxret.types import PRNGKey, State, Stream, Trace


class Slates(NamedTuple):
    """The slates of c rounds of R runs.

    Attributes:
      items: [R, c, k].
      by_position: the probability of each item, given those above it [R, c, k].
    """

    items: Int[Array, "R c k"]
    by_position: Float[Array, "R c k"]


class LoggedSimulation(Simulation):
    """A `Simulation` in which run r writes the log of its seed.

    Args:
      family: function from the numbers of a setting to a learner.
      task: task whose queries are streamed; its ids name items and queries in the log.
      *args: the environment of the rounds, or nothing.
      folder: folder of the logs.
      **settings: keyword arguments of `Simulation`.

    Raises:
      ValueError: if slates of several items are to be logged on several devices, or `Simulation`
        refuses an argument.
    """

    def __init__(self, family: Family, task: Task, *args: Any, folder: Path, **settings: Any):
        self._paths = [folder / f"seed_{seed}.jsonl" for seed in settings["seeds"]]
        self._slates = _shows_several(family(*settings.get("example", ())), task)
        if self._slates:
            devices, settings["form"] = settings.get("devices"), "scan"
            if devices is not None:
                raise ValueError(
                    f"slates are logged in the plain scan: leave devices={devices} out"
                )
        super().__init__(family, task, *args, **settings)

    def run(
        self,
        settings: Float[np.ndarray, "R n"],
        orders: Int[np.ndarray, "R T"],
        *,
        resume: Path | None = None,
        title: str = "simulate",
        first: State | None = None,
    ) -> tuple[State, Trace]:
        """Simulate and log whole streams.

        Raises:
          ValueError: if a log belongs to another run, or lacks rounds before ``resume``.
        """
        facts = {"learner": self._learner.name, "data": self.task.name}
        facts["run"] = self.fingerprint(settings, orders)
        seeds = np.asarray(self._seeds).tolist()
        self._writers = [
            LogWriter(path, facts | {"seed": seed})
            for path, seed in zip(self._paths, seeds, strict=True)
            if distributed.leads()
        ]
        found = super().run(settings, orders, resume=resume, title=title, first=first)
        for writer in self._writers:
            _require_rounds(writer, orders.shape[1])
        return found

    def _chunk(self, states, numbers, order) -> tuple[State, Trace]:
        first = np.asarray(distributed.fetch(states.t))
        recorded: Any
        new, recorded = super()._chunk(states, numbers, order)
        trace, slates = jax.device_get(recorded if self._slates else (recorded, None))
        if slates is None:
            slates = Slates(trace.item[..., None], trace.propensity[..., None])
        for run, writer in enumerate(self._writers):
            line = jax.tree.map(lambda x, run=run: x[run], (trace, slates))
            self._write(writer, int(first[run]), np.asarray(order[run]), *line)
        return new, trace

    def _write(self, writer, first, order, trace, slates):
        """Write the rounds of a chunk that are not in the log yet."""
        _require_rounds(writer, first)
        ids, lines = self.task.ids, []
        rounds = np.flatnonzero(order >= 0)[writer.lines - first :]
        _require_tools(trace.item[rounds])
        queries = self._queries(first + rounds, order[rounds])
        # The version of a learner under interventions is not recorded.
        known = not intervenes(self.environment)
        for i, query in zip(rounds.tolist(), queries, strict=True):
            # If fewer items are available than are shown, the first item fills the slate.
            items = list(dict.fromkeys(slates.items[i].tolist()))
            slate, positions = [ids[item] for item in items], slates.by_position[i, : len(items)]
            version = first + i if known else None
            sure = trace.confidence[i]
            shown = logs.shown(first + i, query, slate, positions.tolist(), version, sure)
            used = ids[trace.item[i]], trace.propensity[i], trace.reward[i]
            lines.append(shown | logs.answered(first + i, *used))
        writer.append(lines)

    def _queries(self, t, query) -> Sequence[str] | np.ndarray:
        """Return the ids of queries, or their vectors if the environment changes them."""
        environment, task = self.environment, self.task
        if not effects_with(environment, "queries_at"):
            return [task.query_ids[one] for one in query]
        return np.asarray(jax.vmap(partial(queries_at, environment))(t, query, task.queries[query]))

    def _rounds(self) -> SimulateRounds:
        return _scan_slates if self._slates else super()._rounds()


def _scan_slates(
    learner: Learner, state: State, environment: Environment, stream: Stream, key: PRNGKey
) -> tuple[State, tuple[Trace, Slates]]:
    """Simulate a stream round by round and also record the slates."""

    @partial(jax.jit, inline=True)  # traced once for both branches
    def run_round(state, query):
        slate = show(learner, state, environment, stream, query, key)
        available = available_at(environment, state.t, state.available)
        before = state._replace(available=available)
        learner_query = learner_query_at(learner, environment, state.t, query, stream)
        p = position_probabilities(learner, learner_state(before), learner_query, slate)
        new, line = learn(learner, state, environment, stream, query, key, slate)
        return new, (line, Slates(slate.items, p))

    def skip(state, query):
        line = jax.eval_shape(run_round, state, query)[1]
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), line)

    def step(state, query):
        return lax.cond(query >= 0, run_round, skip, state, query)

    return lax.scan(step, state, stream.order)


def _shows_several(learner: Learner, task: Task) -> bool:
    """Return whether a round shows more than one item."""

    def act(theta, key):
        blank = query_for(learner, jnp.zeros_like(theta[0]))
        return learner.act(learner.init(theta), blank, key)

    slate = jax.eval_shape(act, jnp.asarray(task.theta), jax.random.key(0))
    return len(slate.items) > 1


def _require_tools(items: Int[np.ndarray, " n"]) -> None:
    if (items < 0).any():
        raise ValueError(
            "a log has no line for an empty answer: simulate the learner without jr.abstaining, "
            "and choose the threshold from its log with jr.threshold"
        )


def _require_rounds(writer: LogWriter, rounds: int) -> None:
    if writer.lines < rounds:
        raise ValueError(
            f"{writer.path} ends after {writer.lines} rounds, and the run that is resumed is at "
            f"{rounds}: delete its folder to begin again"
        )
