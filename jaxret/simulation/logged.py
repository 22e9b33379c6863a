"""A simulation that writes what a live system would: a log a seed, chunk by chunk.

    simulate(with_exploration(greedy()), train, seeds=3, log="logs")       logs/seed_0.jsonl, ..

Of one tool a round everything stands in the `Trace`, and the fast forms do; slates are recorded in
the plain scan. What a log holds already is not written again: a run that is interrupted and resumed
leaves the log of one that was not.

Letters: R runs, c rounds a chunk, k items shown.
"""

from collections.abc import Callable, Sequence
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
from jaxret.learners.learner import Learner
from jaxret.learners.places import place_chances
from jaxret.logs import LogWriter
from jaxret.runtime import distributed
from jaxret.simulation.engine import CHUNK, Simulation
from jaxret.simulation.scan import learn, show_slate
from jaxret.task import Task
from jaxret.types import PRNGKey, State, Stream, Trace


class Slates(NamedTuple):
    """What was shown in c rounds of R runs."""

    items: Int[Array, "R c k"]
    by_place: Float[Array, "R c k"]  # the chance of each given those above it


class LoggedSimulation(Simulation):
    """A simulation in which run r writes the log of its seed; the rest as `Simulation`.

    Args:
      make: makes the learner; it takes no numbers.
      task: what is streamed; its ids name tools and queries.
      environment: what responds.
      seeds: R numbers.
      folder: of the logs.
      chunk: rounds a chunk, and between two writes.
      devices: as in `Simulation`; for one tool a round.

    Raises:
      ValueError: as `Simulation`; and for slates of several tools on several devices.
    """

    def __init__(
        self,
        make: Callable[[], Learner],
        task: Task,
        environment: Environment | None = None,
        *,
        seeds: Sequence[int],
        folder: Path,
        chunk: int = CHUNK,
        devices: int | None = None,
    ):
        super().__init__(make, task, environment, seeds=seeds, chunk=chunk, devices=devices)
        self._paths = [folder / f"seed_{seed}.jsonl" for seed in seeds]
        self._slates = _shows_several(make(), task)
        if self._slates:
            if devices is not None:
                raise ValueError(
                    f"slates are logged in the plain scan: leave devices={devices} out"
                )
            self._blocked = False

    def run(
        self,
        settings: Float[np.ndarray, "R n"],
        orders: Int[np.ndarray, "R T"],
        *,
        resume: Path | None = None,
        title: str = "simulate",
    ) -> tuple[State, Trace]:
        """Simulates and logs whole streams; as `Simulation.run`.

        Raises:
          ValueError: where a log is another run's, or lacks rounds that ``resume`` has behind it.
        """
        facts = {"learner": self._make().name, "data": self.task.name}
        facts["run"] = self.fingerprint(settings, orders)
        seeds = np.asarray(self._seeds).tolist()
        self._writers = [
            LogWriter(path, facts | {"seed": seed})
            for path, seed in zip(self._paths, seeds, strict=True)
            if distributed.leads()
        ]
        found = super().run(settings, orders, resume=resume, title=title)
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
        """The rounds of a chunk that the log does not hold yet."""
        _require_rounds(writer, first)
        ids, lines = self.task.ids, []
        rounds = np.flatnonzero(order >= 0)[writer.lines - first :]
        queries = self._queries(first + rounds, order[rounds])
        # The version of a learner under interventions is not recorded.
        known = not intervenes(self._world(()))
        for i, query in zip(rounds.tolist(), queries, strict=True):
            # Where fewer tools are there than are shown, the first stands again in the rest.
            items = list(dict.fromkeys(slates.items[i].tolist()))
            slate, places = [ids[item] for item in items], slates.by_place[i, : len(items)]
            version = first + i if known else None
            shown = logs.shown(first + i, query, slate, places.tolist(), version)
            used = ids[trace.item[i]], trace.propensity[i], trace.reward[i]
            lines.append(shown | logs.answered(first + i, *used))
        writer.append(lines)

    def _queries(self, t, query) -> Sequence[str] | np.ndarray:
        """Returns the ids of queries; or their vectors, where the environment changes them."""
        world, task = self._world(()), self.task
        if not effects_with(world, "queries_at"):
            return [task.query_ids[one] for one in query]
        return np.asarray(jax.vmap(partial(queries_at, world))(t, query, task.queries[query]))

    def _form(self):
        return _scan_slates if self._slates else super()._form()


def _scan_slates(
    learner: Learner,
    state: State,
    environment: Environment,
    stream: Stream,
    key: PRNGKey,
) -> tuple[State, tuple[Trace, Slates]]:
    """`scan_rounds` that also records slates."""

    def run_round(state, query):
        slate = show_slate(learner, state, environment, stream, query, key)
        here = available_at(environment, state.t, state.available)
        before = state._replace(available=here)
        vector = queries_at(environment, state.t, query, stream.queries[query])
        chances = place_chances(learner, learner_state(before), vector, slate)
        new, line = learn(learner, state, environment, stream, query, key, slate)
        return new, (line, Slates(slate.items, chances))

    def skip(state, query):
        line = jax.eval_shape(run_round, state, query)[1]
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), line)

    def step(state, query):
        return lax.cond(query >= 0, run_round, skip, state, query)

    return lax.scan(step, state, stream.order)


def _shows_several(learner: Learner, task: Task) -> bool:
    """Whether a round shows more than one tool."""

    def act(theta, key):
        return learner.act(learner.init(theta), jnp.zeros_like(theta[0]), key)

    slate = jax.eval_shape(act, jnp.asarray(task.theta), jax.random.key(0))
    return len(slate.items) > 1


def _require_rounds(writer: LogWriter, rounds: int) -> None:
    if writer.lines < rounds:
        raise ValueError(
            f"{writer.path} ends after {writer.lines} rounds, and the run that is resumed is at "
            f"{rounds}: delete its folder to begin again"
        )
