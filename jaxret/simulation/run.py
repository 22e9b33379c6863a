"""What a simulation leaves: who learnt on what, every round of every seed, and the last states.

    print(run)                    who, how many rounds, how, accuracy and its error, seconds
    run.accuracy, run.curves      of every seed
    run.plot().savefig(..)        with seeds as a band
    run.save("embeddings")        ids, rows and query map of one seed, for whoever serves them

Letters: S seeds, T rounds.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxret.embeddings import Embeddings
from jaxret.environments.environment import Environment
from jaxret.evaluation.estimate import Estimate
from jaxret.learners.learner import Learner
from jaxret.learners.mixture import heaviest
from jaxret.learners.narrow_rows import wide
from jaxret.runtime import distributed
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.types import State, Trace

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

CURVES = ("success", "reward", "loss", "p_success")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Run:
    """One learner on a task's stream, with S seeds. Made by `simulate` or a `Sweep`."""

    learner: Learner
    task: Task
    seeds: tuple[int, ...]
    order: Int[np.ndarray, "S T"]  # the query of each round
    trace: Trace  # fields [S, T]
    states: State  # the last ones; leaves with a leading axis of seeds
    environment: Environment
    how: str  # blocked, scan or mesh of n devices
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)  # where a sweep chose them

    @property
    def name(self) -> str:
        return self.learner.name

    @cached_property
    def accuracy(self) -> Estimate:
        """Share of rounds in which what was used was right, before the round's update."""
        return Estimate.of(np.asarray(self.trace.success, np.float64).mean(axis=1))

    @cached_property
    def curves(self) -> dict[str, Float[np.ndarray, "S T"]]:
        """What happened in each round of each seed.

        Returns:
          ``success``, ``reward``, ``loss`` and ``p_success``, each [S, T].
        """
        return {name: np.asarray(getattr(self.trace, name)) for name in CURVES}

    def state(self, seed: int) -> State:
        """The last state of one of the seeds, by its number."""
        if seed not in self.seeds:
            raise ValueError(f"seed must be one of {list(self.seeds)}, got {seed}")
        place = self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[place], self.states)

    def embeddings(self, seed: int | None = None) -> Embeddings:
        """Returns the embeddings that one seed learned.

        Args:
          seed: one of ``seeds``; None: the first.

        Raises:
          ValueError: for a seed that did not run.
        """
        state = self.state(self.seeds[0] if seed is None else seed)
        return from_state(self.learner, state, self.task, settings=self.settings)

    def save(self, folder: str | Path, seed: int | None = None) -> None:
        """Writes what one seed learnt (`jaxret.embeddings`); the first where none is named."""
        self.embeddings(seed).save(folder)

    def plot(self, curve: str = "success", *, window: int | None = None) -> "Figure":
        """Draws a running mean of a curve, its seeds as a band.

        Args:
          curve: one of `CURVES`.
          window: rounds of the running mean; None: a twentieth of the stream.
        """
        return plot([self], curve, window=window)

    def frame(self) -> "pandas.DataFrame":
        """Every round of every seed as a row; needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("a frame needs pandas: pip install pandas") from error

        seeds, rounds = self.order.shape
        columns = {name: np.asarray(part).ravel() for name, part in self.trace._asdict().items()}
        index = {
            "learner": self.name,
            "seed": np.repeat(self.seeds, rounds),
            "round": np.tile(np.arange(rounds), seeds),
            "query": self.order.ravel(),
        }
        return pandas.DataFrame({**index, **columns})

    def __repr__(self) -> str:
        seeds, rounds = self.order.shape
        many = f"{seeds} seed{'s' if seeds > 1 else ''}"
        return (
            f"{self.name} on {self.task.name}: {rounds:,} rounds x {many} ({self.how}, "
            f"{self.seconds:.1f} s), accuracy {self.accuracy}"
        )


def from_state(
    learner: Learner, state: State, task: Task, *, settings: Mapping[str, Any] | None = None
) -> Embeddings:
    """Reads rows and query map off the state of a learner.

    Every query map is affine, so the images of the origin and of the axes determine it. Of a
    mixture, rows and map are those of the expert with the largest weight.

    Args:
      learner: that the state belongs to.
      state: of one seed.
      task: names ids, encoder, template and data set.
      settings: kept with the learner's own settings in ``facts``; None: nothing more.

    Returns:
      the embeddings.
    """
    state = distributed.fetch(state)
    if learner.mixing is not None:
        learner, state = heaviest(learner, state)
    matrix = offset = None
    width = state.theta.shape[1]
    if learner.map_queries is not None:
        points = np.concatenate([np.zeros((1, width)), np.eye(width)])
        offset, *axes = np.asarray(learner.map_queries(state, jnp.asarray(points, jnp.float32)))
        matrix = np.stack(axes, axis=1) - offset[:, None]
    rule, origin = learner.rule, learner.origin
    numbers = {} if rule is None else {"tau": float(rule.tau), "eta": float(rule.eta)}
    given = {} if origin is None else json.loads(origin[1])
    available = np.asarray(state.available)
    from jaxret import __version__

    return Embeddings(
        ids=list(task.ids),
        theta=np.asarray(wide(state.theta)),
        query_matrix=matrix,
        query_offset=offset,
        available=None if available.all() else available,
        facts={
            "learner": learner.name,
            "settings": {**given, **numbers, **(settings or {})},
            "encoder": None if task.encoder is None else task.encoder.spec.name,
            "document": task.document,
            "data": task.name,
            "jaxret": __version__,
        },
    )


def plot(runs: Sequence[Run], curve: str = "success", *, window: int | None = None) -> "Figure":
    """Draws a curve of several runs in one figure; the arguments are those of `Run.plot`."""
    import matplotlib

    from jaxret.evaluation import plots

    if curve not in CURVES:
        raise ValueError(f"curve must be one of {', '.join(CURVES)}, got {curve!r}")
    require("runs", runs, "one run or more", len)
    shortest = min(run.order.shape[1] for run in runs)
    width = max(1, shortest // 20) if window is None else window
    figure, ax = plots.new_figure("round", f"{curve}, mean of {width} rounds")
    for run in runs:
        values = plots.running_mean(np.asarray(run.curves[curve], np.float64), width)
        rounds = np.arange(min(width, shortest), values.shape[1] + 1)  # from the first full window
        plots.curve_with_band(ax, rounds, values[:, rounds[0] - 1 :], run.name)
    plots.label_curves(ax)
    if "inline" in matplotlib.get_backend():
        plots.plt.close(figure)  # a notebook shows what a cell returns, and would show it twice
    return figure
