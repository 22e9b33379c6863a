"""Grids of settings as one program, and the setting that does best where it is not reported.

    grid = sweep(greedy, fit, tau=[0.01, 0.03], eta=[0.003, 0.03], seeds=5)
    best = grid.best(on=validation)            a `Run`, with ``best.settings``

The labels of the validation task choose, so that task must not be reported, nor be part of what is
streamed: `Task.split` cuts both apart.

Letters: G settings, S seeds, T rounds, I items, d width.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret.environments.environment import Environment
from jaxret.evaluation.evaluate import evaluate, evaluate_settings
from jaxret.learners import grid as grids
from jaxret.learners.learner import Learner
from jaxret.simulation.engine import CHUNK, Simulation
from jaxret.simulation.run import Run
from jaxret.simulation.simulate import seed_numbers, stream_orders
from jaxret.task import Task


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sweep:
    """A run for each setting of a grid. Made by `sweep`."""

    runs: tuple[Run, ...]  # G
    make: Callable[..., Learner]  # numbers of a setting -> learner
    points: Float[np.ndarray, "G n"]  # the numbers

    def best(self, *, on: Task, metric: str = "ndcg@10") -> Run:
        """Chooses the run whose last states rank a task best.

        The largest mean over seeds wins, of equals that with the smaller ``eta``.

        Args:
          on: the queries that choose; none of their questions may have been streamed.
          metric: as in `jaxret.evaluation.evaluate.evaluate`.

        Raises:
          ValueError: if a question of ``on`` was streamed.
        """
        _refuse_streamed(on, self.runs[0].task)
        seeds = len(self.runs[0].seeds)
        states = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *self.states)
        points = np.repeat(self.points, seeds, axis=0)
        values = evaluate_settings(self.make, points, states, on, metric).astype(np.float64)
        means = values.mean(axis=1).reshape(-1, seeds).mean(axis=1)  # NaN: it diverged
        means = np.where(np.isnan(means), -np.inf, means)
        etas = [0.0 if (rule := run.learner.rule) is None else rule.eta for run in self.runs]
        return self.runs[max(range(len(means)), key=lambda g: (means[g], -etas[g]))]

    @property
    def states(self) -> list[Any]:
        """The last states of each setting."""
        return [run.states for run in self.runs]

    def __repr__(self) -> str:
        return table(self.runs)


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
    """Simulates every combination of settings, with every seed, as one compiled program.

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
      ValueError: for a setting that the preset refuses, one that cannot vary within a program, or
        where no list is given.
    """
    grid = grids.grid(preset, **settings)
    if not grid.names:
        raise ValueError("a sweep needs a list of values: sweep(greedy, task, tau=[0.01, 0.03])")
    numbers, points = seed_numbers(seeds), grid.settings
    orders = stream_orders(task, exposures, numbers)
    simulation = Simulation(
        grid.make,
        task,
        environment,
        seeds=numbers * len(points),
        example=points[0],
        chunk=chunk,
    )
    begin = time.perf_counter()
    states, trace = simulation.run(
        np.repeat(points, len(numbers), axis=0),
        np.tile(orders, (len(points), 1)),
        title=f"{grid.name}, {len(points)} settings",
    )
    seconds = time.perf_counter() - begin

    def of_setting(tree, g):
        first = g * len(numbers)
        return jax.tree.map(lambda leaf: leaf[first : first + len(numbers)], tree)

    runs = tuple(
        Run(
            learner=grid.learner(g),
            task=task,
            seeds=numbers,
            order=orders,
            trace=of_setting(trace, g),
            states=of_setting(states, g),
            environment=environment or Environment(),
            how=simulation.how,
            seconds=seconds / len(points),
            settings=dict(zip(grid.names, point, strict=True)),
        )
        for g, point in enumerate(points.tolist())
    )
    return Sweep(runs=runs, make=grid.make, points=points)


def table(
    runs: Sequence[Run] | Mapping[str, Run],
    on: Task | None = None,
    metrics: Sequence[str] = ("ndcg@10",),
) -> str:
    """Runs below one another: accuracy while learning, and how well the last states rank.

    Args:
      runs: any; by name, where the learners' own names do not tell them apart.
      on: the queries that are ranked; None: accuracy alone.
      metrics: of the ranking, as in `jaxret.evaluation.evaluate.evaluate`.
    """
    lines = [["learner", "online accuracy", *(metrics if on is not None else ()), "rounds", "how"]]
    named = runs.items() if isinstance(runs, Mapping) else ((_named(run), run) for run in runs)
    for name, run in named:
        ranked = [] if on is None else [str(x) for x in evaluate(run, on, metrics).values()]
        rounds = f"{run.order.shape[1]:,} x {len(run.seeds)}"
        lines.append([name, str(run.accuracy), *ranked, rounds, run.how])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = (
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(row.rstrip() for row in rows)


def _named(run: Run) -> str:
    settings = ", ".join(f"{name}={value:g}" for name, value in run.settings.items())
    return f"{run.name} ({settings})" if settings else run.name


def _refuse_streamed(on: Task, streamed: Task) -> None:
    """Settings are not chosen on questions that the learner was trained on."""
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
