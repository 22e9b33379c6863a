"""Grids of settings as one program, and the choice of a setting on validation queries.

    swept = sweep(greedy, task, part=parts.training, tau=[0.01, 0.03], eta=[0.003, 0.03], seeds=5)
    best = swept.best(on=parts.validation)      a `Run`, with ``best.settings``
    run = simulate(best, task, part=parts.streamed, seeds=5)

The choice uses the labels of the validation queries, so no results may be reported on them.

Letters: G settings of n numbers, S seeds, T rounds, N queries.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.environments.environment import Environment
from jaxret.evaluation.evaluate import evaluate_each
from jaxret.learners import grid as grids
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import Learner
from jaxret.simulation.engine import CHUNK, Form, Simulation
from jaxret.simulation.run import Run, table
from jaxret.simulation.simulate import run_streams
from jaxret.simulation.streams import seed_numbers, stream_orders
from jaxret.task import Task


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sweep:
    """A run for each setting of a grid, from `sweep`.

    Attributes:
      runs: one run per setting.
      grid: grid of the settings.
    """

    runs: tuple[Run, ...]
    grid: LearnerGrid

    def values(
        self, *, on: Task | Bool[np.ndarray, "*S N"], metric: str = "ndcg@10"
    ) -> Float[np.ndarray, "G S"]:
        """Compute the value of each setting, by which `best` chooses.

        The value is the metric of the ranking by the last states, plus the success rate on those
        queries of ``on`` that were streamed: a setting should both serve while it learns and rank
        well afterwards.

        Args:
          on: validation queries: another part of the task [N], or one row per seed [S, N]; or
            another task, none of whose questions were streamed.
          metric: metric of `jaxret.evaluation.evaluate.evaluate`.

        Returns:
          [G, S].

        Raises:
          ValueError: if a question of a separate validation task was streamed.
        """
        return np.stack([_value(run, on, metric) for run in self.runs])

    def best(self, *, on: Task | Bool[np.ndarray, "*S N"], metric: str = "ndcg@10") -> Run:
        """Choose the setting with the largest value (`values`).

        With one row per seed, each seed chooses its own setting, since the validation queries of
        one seed may be reported by another. Otherwise the mean over seeds chooses one setting for
        all. Ties go to the smallest ``eta``.

        Args:
          on: validation queries: another part of the task [N], or one row per seed [S, N]; or
            another task, none of whose questions were streamed.
          metric: metric of `jaxret.evaluation.evaluate.evaluate`.

        Returns:
          The run of the chosen settings; its ``settings`` names them.

        Raises:
          ValueError: if a question of a separate validation task was streamed.
        """
        values = self.values(on=on, metric=metric)
        names, settings = self.grid.names, self.grid.settings
        etas = settings[:, names.index("eta")] if "eta" in names else np.zeros(len(settings))
        by_eta = np.argsort(etas, kind="stable")
        if isinstance(on, Task) or np.ndim(on) == 1:
            return self.runs[by_eta[values.mean(axis=1)[by_eta].argmax()]]
        return self._chosen(by_eta[values[by_eta].argmax(axis=0)])

    def _chosen(self, best: np.ndarray) -> Run:
        """Return the run in which seed s has setting ``best[s]``."""
        first, seeds = self.runs[0], range(len(self.runs[0].seeds))

        def pick(*leaves):
            return np.stack([np.asarray(leaves[g][s]) for s, g in zip(seeds, best, strict=True)])

        settings = self.grid.settings[best]
        return replace(
            first,
            learner=self.grid.learner(best[0]),
            numbers=settings,
            trace=jax.tree.map(pick, *(run.trace for run in self.runs)),
            states=jax.tree.map(pick, *(run.states for run in self.runs)),
            seconds=sum(run.seconds for run in self.runs),
            settings=self.grid.columns(settings),
        )

    def __repr__(self) -> str:
        return table(self.runs)


def sweep(
    preset: Callable[..., Learner] | LearnerGrid,
    task: Task,
    *,
    part: Bool[np.ndarray, "*S N"] | None = None,
    exposures: int = 1,
    rounds: int | None = None,
    hops: bool = False,
    order: Int[np.ndarray, "*S T"] | None = None,
    seeds: int | Sequence[int] = 1,
    environment: Environment | None = None,
    form: Form = "auto",
    resume: str | Path | None = None,
    chunk: int = CHUNK,
    **settings: Any,
) -> Sweep:
    """Simulate every setting of a grid, with every seed, by one compiled program.

    Args:
      preset: function that makes the learner, such as ``jr.greedy``; or a grid (`jr.grid`).
      task: task whose queries are streamed.
      part: mask of the queries to stream, [N], or one row per seed [S, N]; None: all queries.
      exposures: number of times that each query is streamed.
      rounds: length at which streams are cut; None: streams are simulated to their ends.
      hops: whether the queries of a group are the hops of one question.
      order: positions of the queries in the order of the stream, [T] or [S, T]; replaces
        ``part``, ``exposures`` and ``hops``.
      seeds: number of seeds, or the seeds themselves; the same for all settings.
      environment: environment of the rounds; None: correct rewards, all items available.
      form: 'auto', 'scan' or 'blocked'.
      resume: folder of checkpoints; after Ctrl-C or SIGTERM the same call continues the sweep.
      chunk: rounds between two points where the sweep can stop.
      **settings: settings of the preset; a list of numbers (tau, eta, ..) is an axis of the grid,
        any other value is the same for all.

    Raises:
      ValueError: if ``preset`` makes no learners, it refuses a setting, a setting cannot vary
        within a program, or no list is given.
    """
    grid = preset if isinstance(preset, LearnerGrid) else grids.grid(preset, **settings)
    if not isinstance(preset, LearnerGrid) and not grid.names:
        raise ValueError("a sweep needs a list of values: sweep(greedy, task, tau=[0.01, 0.03])")
    if isinstance(preset, LearnerGrid) and settings:
        raise ValueError(f"a grid has its settings already: leave {', '.join(settings)} out")
    numbers, points = seed_numbers(seeds), grid.settings
    stream: dict[str, Any] = {"part": part, "rounds": rounds, "hops": hops, "order": order}
    orders = stream_orders(task, exposures, numbers, **stream)
    # A CPU executes runs one after another anyway, so a loop over settings costs no more and shares
    # the program of `simulate`. Accelerators execute all runs at once.
    at_once = 1 if jax.default_backend() == "cpu" or resume is not None else len(points)
    shared: dict[str, Any] = {"example": points[0].tolist(), "chunk": chunk, "form": form}
    simulation = Simulation(grid.family, task, environment, seeds=numbers * at_once, **shared)
    runs = []
    for first in range(0, len(points), at_once):
        begin = time.perf_counter()
        some = points[first : first + at_once]
        states, trace = run_streams(
            simulation,
            np.repeat(some, len(numbers), axis=0),
            np.tile(orders, (len(some), 1)),
            name=grid.name if len(points) == 1 else f"{grid.name}, setting {first + 1}",
            resume=None if resume is None else Path(resume) / str(first),
        )
        seconds = (time.perf_counter() - begin) / len(some)
        for g, point in enumerate(some):
            rows = slice(g * len(numbers), (g + 1) * len(numbers))
            runs.append(
                Run(
                    learner=grid.family(*point.tolist()),
                    family=grid.family,
                    numbers=np.tile(point, (len(numbers), 1)),
                    task=task,
                    seeds=numbers,
                    order=orders,
                    trace=jax.tree.map(lambda leaf, rows=rows: leaf[rows], trace),
                    states=jax.tree.map(lambda leaf, rows=rows: leaf[rows], states),
                    environment=environment or Environment(),
                    form=simulation.form,
                    seconds=seconds,
                    settings=dict(zip(grid.names, point.tolist(), strict=True)),
                )
            )
    return Sweep(runs=tuple(runs), grid=grid)


def _value(run: Run, on: Task | Bool[np.ndarray, "*S N"], metric: str) -> Float[np.ndarray, " S"]:
    """Compute `Sweep.values` of one setting."""
    if isinstance(on, Task):
        _refuse_streamed(on, run.task)
        ranked = evaluate_each(run, on, [metric])[metric].astype(np.float64)
        return ranked.mean(axis=1)
    ranked = evaluate_each(run, run.task, [metric], part=on)[metric].astype(np.float64)
    masks = np.broadcast_to(on, (len(run.seeds), len(run.task)))
    counts = np.take_along_axis(masks, run.order, axis=1) & (run.order >= 0)
    success = np.where(counts, np.asarray(run.trace.success, np.float64), 0.0)
    online = success.sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
    return np.nanmean(ranked, axis=1) + online


def _refuse_streamed(on: Task, streamed: Task) -> None:
    """Refuse to choose settings on questions that were streamed."""
    parts_of_one = on.theta is streamed.theta  # parts of a task share its catalogue
    one_source = (
        on.dataset is not None and streamed.dataset is not None and on.name == streamed.name
    )
    if parts_of_one or one_source:
        shared = np.isin(on.groups, streamed.groups)
    else:
        seen = {query.tobytes() for query in streamed.queries}
        shared = np.array([query.tobytes() in seen for query in on.queries])
    if shared.any():
        raise ValueError(
            f"{shared.sum()} queries of the task that chooses belong to questions that were "
            "streamed: cut both apart with task.split(...)"
        )
