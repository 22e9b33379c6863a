"""The result of a simulation: the learner, every round of every seed, and the last states.

    print(run)                    learner, rounds, form, accuracy with its error, seconds
    run.accuracy, run.curves      of every seed
    run.plot().savefig(..)        with a band over seeds
    run.save("embeddings")        ids, rows and query map of one seed

Letters: S seeds, T rounds, N queries, n numbers of a setting.
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
from jaxtyping import Array, Float, Int

from jaxret.embeddings import Embeddings
from jaxret.encoders import encoder_name
from jaxret.environments.environment import Environment
from jaxret.evaluation.estimate import Estimate
from jaxret.evaluation.evaluate import evaluate
from jaxret.learners.grid import Family
from jaxret.learners.guarded import serving
from jaxret.learners.learner import Learner, map_queries
from jaxret.learners.mixture import blend_of, heaviest
from jaxret.learners.rank_one import rule_of
from jaxret.learners.replay import Replay, without_buffer
from jaxret.learners.wrappers import innermost
from jaxret.rules.offsets import of_usage
from jaxret.runtime import distributed
from jaxret.runtime.validate import require, require_one_of
from jaxret.simulation.streams import by_question
from jaxret.task import Task
from jaxret.types import State, Trace
from jaxret.version import __version__

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

CURVES = ("success", "reward", "loss", "p_success")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Run:
    """The result of one learner on a task's stream with S seeds, from `simulate` or `Sweep.best`.

    Attributes:
      learner: learner of the first seed.
      family: function from the numbers of a setting to a learner.
      numbers: numbers of each seed's learner [S, n].
      task: task whose queries were streamed.
      seeds: S seeds.
      order: position of the query of each round [S, T]; -1 where a seed's stream has ended.
      trace: fields [S, T]; NaN (items: -1) where a seed's stream has ended.
      states: last states; leaves with a leading axis [S].
      environment: environment of the rounds.
      form: scan, blocked, mesh of n devices, or round by round, selected outside.
      seconds: duration of the simulation, compilation included.
      settings: settings chosen by a sweep: name -> number, or [S], one per seed.
    """

    learner: Learner
    family: Family
    numbers: Float[np.ndarray, "S n"]
    task: Task
    seeds: tuple[int, ...]
    order: Int[np.ndarray, "S T"]
    trace: Trace
    states: State
    environment: Environment
    form: str
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The learner's name."""
        return self.learner.name

    @cached_property
    def accuracy(self) -> Estimate:
        """Share of rounds in which the item used was right, by the rows before the update."""
        return Estimate.of(np.nanmean(np.asarray(self.trace.success, np.float64), axis=1))

    @cached_property
    def curves(self) -> dict[str, Float[np.ndarray, "S T"]]:
        """Values of ``success``, ``reward``, ``loss`` and ``p_success`` in each round [S, T]."""
        return {name: np.asarray(getattr(self.trace, name)) for name in CURVES}

    def complete(self, exposures: int = 1) -> Estimate:
        """Compute the share of questions whose hops all succeeded, in a stream of hops.

        Args:
          exposures: number of times that each hop was streamed; each time counts on its own.

        Raises:
          ValueError: if the rounds of a seed are not a multiple of ``exposures``.
        """
        success, groups = np.asarray(self.trace.success), np.asarray(self.task.groups)
        solved = [
            by_question(bits[order >= 0], groups[order[order >= 0]], exposures=exposures)
            for bits, order in zip(success, self.order, strict=True)
        ]
        return Estimate.of(np.array([bits.mean() for bits in solved]))

    def learner_of(self, seed: int) -> Learner:
        """Return the learner of one seed, with the setting chosen for the seed."""
        learner = self.family(*self.numbers[self._position(seed)].tolist())
        return learner._replace(name=self.name)

    def state(self, seed: int) -> State:
        """Return the last state of one seed.

        Raises:
          ValueError: if the seed was not simulated.
        """
        position = self._position(seed)
        return _at(self.states, position)

    def embeddings(self, seed: int | None = None) -> Embeddings:
        """Return the learnt rows and query map of one seed.

        Args:
          seed: number of the seed; None: the first seed.
        """
        seed = self.seeds[0] if seed is None else seed
        position = self._position(seed)
        chosen = {
            name: float(np.broadcast_to(x, len(self.seeds))[position])
            for name, x in self.settings.items()
        }
        facts = {**chosen, "seed": seed}
        return embeddings_of(self.learner_of(seed), self.state(seed), self.task, settings=facts)

    def save(self, folder: str | Path, seed: int | None = None) -> None:
        """Save the learnt rows and query map of one seed (`jaxret.embeddings`).

        Args:
          folder: folder to write; an existing one is overwritten.
          seed: number of the seed; None: the first seed.
        """
        self.embeddings(seed).save(folder)

    def plot(self, curve: str = "success", *, window: int | None = None) -> "Figure":
        """Draw a running mean of a curve, with a band over seeds.

        Args:
          curve: one of `CURVES`.
          window: rounds in the running mean; None: a twentieth of the stream.
        """
        return plot([self], curve, window=window)

    def frame(self) -> "pandas.DataFrame":
        """Return a table with a row for every round of every seed.

        Raises:
          ImportError: if pandas is not installed.
        """
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

    def _position(self, seed: int) -> int:
        if seed not in self.seeds:
            raise ValueError(f"seed must be one of {list(self.seeds)}, got {seed}")
        return self.seeds.index(seed)

    def __repr__(self) -> str:
        seeds, rounds = self.order.shape
        many = f"{seeds} seed{'s' if seeds > 1 else ''}"
        return (
            f"{self.name} on {self.task.name}: {rounds:,} rounds x {many} ({self.form}, "
            f"{self.seconds:.1f} s), accuracy {self.accuracy}"
        )


def plot(runs: Sequence[Run], curve: str = "success", *, window: int | None = None) -> "Figure":
    """Draw a curve of several runs in one figure, with bands over seeds.

    Args:
      runs: at least one run.
      curve: one of `CURVES`.
      window: rounds in the running mean; None: a twentieth of the shortest stream.

    Raises:
      ValueError: if there is no run, the curve is unknown, or the window is below 1.
    """
    import matplotlib

    from jaxret.evaluation import plots

    require_one_of("curve", curve, CURVES)
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
        plots.plt.close(figure)  # else a notebook would show the figure twice
    return figure


def embeddings_of(
    learner: Learner, state: State, task: Task, *, settings: Mapping[str, Any] | None = None
) -> Embeddings:
    """Extract the rows and the query map from a state.

    Every query map is affine, so its values at the origin and at the unit vectors determine it. A
    mixture has no single matrix of rows: the rows of the expert with the largest weight are used,
    and those of the documents for a learner that its guard has stopped.

    Args:
      learner: learner of the state.
      state: state of one seed.
      task: task whose items the rows represent.
      settings: settings to store with the embeddings, beside the learner's own.
    """
    learner, state = serving(learner, distributed.fetch(state))
    if blend_of(learner) is not None:
        learner, state = heaviest(learner, state)
    width = state.theta.shape[1]
    points = jnp.asarray(np.concatenate([np.zeros((1, width)), np.eye(width)]), jnp.float32)
    images, matrix, offset = map_queries(learner, state, points), None, None
    if images is not points:
        offset, *axes = np.asarray(images)
        matrix = np.stack(axes, axis=1) - offset[:, None]
    rule, origin = rule_of(learner), learner.facts.origin
    numbers = {} if rule is None else {"tau": float(rule.logit_tau), "eta": float(rule.eta)}
    prior_weight, added = offsets_in_scores(learner, state)
    given = {} if origin is None else json.loads(origin[1])
    available = np.asarray(state.available)
    return Embeddings(
        ids=list(task.ids),
        theta=np.asarray(state.theta),
        query_matrix=matrix,
        query_offset=offset,
        available=None if available.all() else available,
        prior_weight=prior_weight,
        usage_offset=added,
        facts={
            "learner": learner.name,
            "settings": {**given, **numbers, **(settings or {})},
            "encoder": None if task.encoder is None else encoder_name(task.encoder),
            "document": task.document,
            "data": task.name,
            "jaxret": __version__,
        },
    )


def offsets_in_scores(
    learner: Learner, state: State
) -> tuple[float | None, Float[np.ndarray, " I"] | None]:
    """Return the offsets of a rank-one learner times tau, to be added to ``theta . u``.

    Args:
      learner: any learner; one without offsets has neither.
      state: state of one seed.

    Returns:
      The weight of the prior scores or None, and the offset of each item's usage [I] or None.
    """
    learner, state = innermost(learner, state)
    if isinstance(structure := learner.structure, Replay):
        rule, state = structure.rule, without_buffer(state)
    else:
        rule = rule_of(learner)
    if rule is None or rule.offsets is None:
        return None, None
    prior, tau = rule.offsets.weight, float(rule.tau)
    weight = None if prior is None else float(prior / (1 - prior))
    if not rule.is_balanced:
        return weight, None
    usage = of_usage(rule.offsets, rule.unpack(state.extra)[2])
    return weight, np.asarray(tau * usage, np.float32)


def table(
    runs: Sequence[Run] | Mapping[str, Run],
    on: Task | None = None,
    metrics: Sequence[str] = ("ndcg@10",),
) -> str:
    """Format runs as a table: accuracy while learning, and metrics of the final ranking.

    Args:
      runs: one or more runs; a mapping by name if the learners' names do not distinguish them.
      on: queries to rank; None: accuracy only.
      metrics: metrics of the ranking (`jaxret.evaluation.evaluate.evaluate`).
    """
    lines = [["learner", "online accuracy", *(metrics if on is not None else ()), "rounds", "form"]]
    named = runs.items() if isinstance(runs, Mapping) else ((_named(run), run) for run in runs)
    for name, run in named:
        ranked = [] if on is None else [str(x) for x in evaluate(run, on, metrics).values()]
        rounds = f"{run.order.shape[1]:,} x {len(run.seeds)}"
        lines.append([name, str(run.accuracy), *ranked, rounds, run.form])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = (
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    )
    return "\n".join(row.rstrip() for row in rows)


def _named(run: Run) -> str:
    def text(value):
        return f"{value:g}" if np.ndim(value) == 0 else ", ".join(f"{x:g}" for x in value)

    settings = ", ".join(f"{name}={text(value)}" for name, value in run.settings.items())
    return f"{run.name} ({settings})" if settings else run.name


@jax.jit
def _at(tree: Any, position: Int[Array, ""]) -> Any:
    """Return one element of each leaf, in one program."""
    return jax.tree.map(lambda leaf: leaf[position], tree)
