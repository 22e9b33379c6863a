"""Grids of settings as one program, and the setting that does best where it is not reported.

    grid = sweep(greedy, fit, tau=[0.01, 0.03], eta=[0.003, 0.03], seeds=5)
    best = grid.best(on=validation)            a `Run`, with ``best.settings``

The labels of the validation task choose, so that task must not be reported, nor be part of what is
streamed: `Task.split` cuts both apart.

Letters: G settings, S seeds, T rounds, I items, d width.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxret.evaluation import evaluate
from jaxret.online import streams
from jaxret.online.environment import Environment
from jaxret.online.learner import Learner
from jaxret.online.run import Run
from jaxret.online.simulate import CHUNK, Simulation
from jaxret.task import Task
from jaxret.validate import require


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """A run for each setting of a grid."""

    runs: tuple[Run, ...]  # G

    def best(self, *, on: Task, metric: str = "ndcg@10") -> Run:
        """The run whose last states rank a task best.

        The largest mean over seeds wins, of equals that with the smaller ``eta``.

        Args:
          on: the queries that choose; none of them may have been streamed.
          metric: as in `jaxret.evaluation.evaluate`.

        Raises:
          ValueError: if a question of ``on`` was streamed.
        """
        _refuse_streamed(on, self.runs[0].task)
        means = [evaluate(run, on, metrics=(metric,))[metric].mean for run in self.runs]
        etas = [run.settings.get("eta", 0.0) for run in self.runs]
        finite = [-np.inf if np.isnan(mean) else mean for mean in means]
        return self.runs[max(range(len(means)), key=lambda g: (finite[g], -etas[g]))]

    def __repr__(self) -> str:
        return "\n".join(f"{dict(run.settings)}: {run}" for run in self.runs)


def sweep(
    preset: Callable[..., Learner],
    task: Task,
    *,
    exposures: int = 1,
    seeds: int | Sequence[int] = 1,
    environment: Environment | None = None,
    chunk: int = CHUNK,
    **settings: Any,
) -> Sweep:
    """Plays every combination of settings, with every seed, as one compiled program.

    Args:
      preset: makes the learner: ``greedy``, or a function of one's own.
      task: its queries are streamed.
      exposures: how often each query comes.
      seeds: how many, or their numbers; the same for all settings.
      environment: what responds.
      chunk: rounds between two calls of the program.
      **settings: of the preset; a list is an axis of the grid (numbers such as tau and eta), the
        rest is the same for all.

    Raises:
      ValueError: for a setting that the preset refuses, or where no list is given.
    """
    axes = {
        name: tuple(map(float, x)) for name, x in settings.items() if isinstance(x, list | tuple)
    }
    require(
        "settings", sorted(settings), "lists of one or more numbers", lambda _: all(axes.values())
    )
    if not axes:
        raise ValueError("a sweep needs a list of values: sweep(greedy, task, tau=[0.01, 0.03])")
    same = {name: value for name, value in settings.items() if name not in axes}
    grid = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    learners = [preset(**same, **point) for point in grid]  # refuses what is out of range
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    orders = np.stack([streams.exposures(len(task), exposures, seed) for seed in numbers])
    simulation = Simulation(
        lambda *values: preset(**same, **dict(zip(axes, values, strict=True))),
        task,
        environment,
        seeds=numbers * len(grid),
        example=tuple(grid[0].values()),
        chunk=chunk,
    )
    begin = time.perf_counter()
    points = np.repeat(np.array([tuple(point.values()) for point in grid]), len(numbers), axis=0)
    states, trace = simulation.play(
        points, np.tile(orders, (len(grid), 1)), title=f"{learners[0].name}, {len(grid)} settings"
    )
    seconds = time.perf_counter() - begin

    def of_setting(tree, g):
        first = g * len(numbers)
        return jax.tree.map(lambda leaf: leaf[first : first + len(numbers)], tree)

    return Sweep(
        tuple(
            Run(
                learner=learners[g],
                task=task,
                seeds=numbers,
                order=orders,
                trace=of_setting(trace, g),
                states=of_setting(states, g),
                environment=environment or Environment(),
                how=f"{simulation.how}, one of {len(grid)} settings",
                seconds=seconds / len(grid),
                settings=point,
            )
            for g, point in enumerate(grid)
        )
    )


def table(
    runs: Sequence[Run], on: Task | None = None, metrics: Sequence[str] = ("ndcg@10",)
) -> str:
    """Runs below one another: accuracy while learning, and how well the last states rank.

    Args:
      runs: any.
      on: the queries that are ranked; None: accuracy alone.
      metrics: of the ranking, as in `jaxret.evaluation.evaluate`.
    """
    lines = [["learner", "online accuracy", *(metrics if on is not None else ()), "rounds", "how"]]
    for run in runs:
        ranked = [] if on is None else [str(x) for x in evaluate(run, on, metrics).values()]
        rounds = f"{run.order.shape[1]:,} x {len(run.seeds)}"
        lines.append([_named(run), str(run.accuracy), *ranked, rounds, run.how])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = (
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(row.rstrip() for row in rows)


def _named(run: Run) -> str:
    told: Mapping[str, Any] = run.settings
    return f"{run.name} ({', '.join(f'{k}={v:g}' for k, v in told.items())})" if told else run.name


def _refuse_streamed(on: Task, streamed: Task) -> None:
    """Settings are not chosen on queries that the learner was trained on."""
    if on.name != streamed.name:
        return
    both = np.intersect1d(on.groups, streamed.groups)
    if len(both):
        raise ValueError(
            f"{len(both)} questions of the task that chooses were streamed too: cut both apart "
            "with task.split(...)"
        )
