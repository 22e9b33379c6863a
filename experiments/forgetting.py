"""How do rankings change while learning, is anything forgotten?   (ORAG Figures 1b and 9, C.5.1)

    uv run python -m experiments.forgetting                                # DeskBank, built in
    uv run python -m experiments.forgetting dataset=ultratool dataset.path=FILE \\
        document=orag_ultratool
    uv run python -m experiments.forgetting exposures=5 \\
        learner=[frozen,greedy_replayed] tsne.tools=0

A stream is stopped at 20 points, and queries are ranked by the current embeddings:

    heldout     queries of a held-out fifth, during a stream of the training part (the paper's
                'offline evaluation')
    seen        all queries so far, ranked again at each point. The paper 'obtains their average
                iteratively', which may also mean the average of each query's value on arrival; such
                a mean would mix embeddings of different times.
    gain        ``seen`` minus the metric of Theta_1 on the same queries
    first_ten   the first ten queries of each seed's stream; with 5 seeds these are 50 queries

Reported for each curve: ``first`` (before any learning; for ``seen`` after the first chunk),
``half`` and ``last``, and ``fall``, the largest decrease from an earlier value. Ten queries say
little about forgetting, so each streamed query is followed, by whether its first item is right:

    learnt      wrong by Theta_1, right at the end
    lost        right by Theta_1, wrong at the end
    forgotten   right at a point after it arrived, wrong at the end
    drop        decrease of accuracy from its maximum to the end, as in Chaudhry et al. (2018), over
                groups that arrived together; fluctuation alone makes it positive

``needed`` and ``others`` are mean cosines of tools' rows with the queries that need them and with
the rest, before and after the stream, ``moved`` is the mean distance between old and new rows, both
scaled to length 1 (so at most 2). embeddings.png shows the rows of some tools before and after, for
one seed, with queries of the stream. The nearest neighbour of a row is usually the same tool's old
row, so t-SNE understates the change.

Each learner has one setting for both streams, chosen as in `experiments.orag` by a stream with the
validation part and without the held-out part.

Letters: S seeds, E points in time (``rounds``: finished rounds at each, beginning with 0), n
queries in order of arrival (``right``: whether the first item is right), m metrics.

2 cores: DeskBank 1 min. The paper's claims, and what to expect there (nDCG@10, 5 seeds):

    Held-out and seen queries improve steadily. Held-out yes, if little from one bit per query:
    0.401 to 0.429 (clipped), 0.428 (orag), 0.413 (greedy); 0.570 with labels. Seen queries gain
    0.042, 0.034, 0.076; 0.582.

    Nothing is forgotten, by the first ten. They end above their start, 0.397 to 0.433, 0.422,
    0.497; 0.913. But at the end 5.0 %, 6.2 %, 8.1 %; 8.7 % of all queries are forgotten, and
    8.7 %, 8.6 %, 15.6 %; 70.5 % are learnt. The oracle's first ten had 1.000 on arrival.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common import tsne
from experiments.common.config import learner_grids
from experiments.common.experiment import Found, Results, experiment
from experiments.common.figures import curves_figure
from experiments.common.learners import chosen
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from experiments.common.streaming import ranking_metrics
from experiments.common.tables import results_table
from jaxret.evaluation import plots
from jaxret.learners.grid import LearnerGrid
from jaxret.learners.learner import map_queries
from jaxret.runtime.validate import require
from jaxret.task import Task

LABELS = {
    "heldout": "held-out queries",
    "seen": "queries seen so far",
    "first_ten": "the first ten queries",
}
LEVELS = ("heldout/ndcg@{k}/first", "heldout/ndcg@{k}/last", "heldout/ndcg@{k}/fall")
LEVELS += ("seen/ndcg@{k}/first", "seen/ndcg@{k}/last", "gain/ndcg@{k}/last", "gain/ndcg@{k}/fall")
FATES = ("first_ten/ndcg@{k}/first", "first_ten/ndcg@{k}/last", "first_ten/ndcg@{k}/fall")
FATES += ("learnt", "lost", "forgotten", "drop")
MOVES = ("needed/before", "needed/after", "others/before", "others/after", "moved")
TABLES = (LEVELS, FATES, MOVES)


@experiment("forgetting")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Follow every learner along both streams; write curves and figures."""
    grids, task = learner_grids(cfg), task_of(cfg)
    metrics = ranking_metrics(cfg.k)
    parts = task.parts(validation=cfg.validation, heldout=cfg.heldout, seeds=[cfg.seed])
    training, validation, heldout = (mask[0] for mask in parts)
    streamed, seeds = ~validation, range(cfg.seed, cfg.seed + cfg.seeds)
    hops = bool(cfg.dataset.get("hops"))
    stream: dict[str, Any] = {"exposures": cfg.exposures, "hops": hops}
    order, shorter = (
        jr.stream_orders(task, cfg.exposures, seeds, part=part, hops=hops)
        for part in (streamed, training)
    )
    chunk = -(-order.shape[1] // cfg.points)
    rounds, heldout_rounds = (points(some, chunk) for some in (order, shorter))
    drawn = sample(cfg, task, streamed)

    def measure(grid):
        """Choose a setting, and follow the learner along both streams."""
        shared: dict[str, Any] = {"seeds": seeds, "chunk": chunk}
        by: dict[str, Any] = {"on": validation, "metric": f"ndcg@{cfg.k}"}
        by |= {"part": training | validation, "resume": run.resume(grid.name, "choice")}
        setting = chosen(grid, task, **by, **stream, **shared)
        shared |= {"pause": run.pause}
        held, _ = follow(setting, task, shorter, heldout, metrics, **shared)
        found, last = follow(setting, task, order, streamed, metrics, **shared)
        first, learner = last.state(seeds[0]), last.learner_of(seeds[0])
        queries = jnp.asarray(task.queries[drawn.queries])
        return {
            "heldout": held,
            "values": found,
            "rows": first.theta[drawn.tools],
            "asked": map_queries(learner, first, queries),
            **row_moves(task, streamed, last),
            **grid.columns(setting.settings),
        }

    results: dict[str, np.ndarray] = {}
    curves = {"rounds": rounds, "heldout/rounds": heldout_rounds}
    steps = {grid.name: partial(measure, grid) for grid in grids}
    for grid, (name, found) in zip(grids, run.results(steps, "learner"), strict=True):
        values = by_arrival(found["values"], order, streamed)
        rankings = {
            "heldout": found["heldout"].mean(axis=-1, dtype=np.float64),
            "seen": seen(values, rounds),
            "gain": seen(values - values[:, :1], rounds),
            "first_ten": values[..., :10].mean(axis=-1, dtype=np.float64),
        }
        for curve, means in rankings.items():
            for metric in (f"recall@{cfg.k}", f"ndcg@{cfg.k}"):
                key = f"{name}/{curve}/{metric}"
                curves[key] = means[..., metrics.index(metric)]
                results |= {f"{key}/{at}": x for at, x in moments(curves[key]).items()}
        right = values[:, :, metrics.index("accuracy")] > 0
        curves[f"{name}/forgotten"] = forgotten(right, rounds)
        single = fates(right, rounds) | {key: found[key] for key in MOVES}
        single |= {number: found[number] for number in grid.names}
        results |= {f"{name}/{key}": value for key, value in single.items()}
        if cfg.tsne.tools and name == cfg.tsne.learner:
            picture(cfg, run, task.theta[drawn.tools], found["rows"], found["asked"])
    run.save_curves(curves)
    for curve, label in LABELS.items():
        at = heldout_rounds if curve == "heldout" else rounds
        shown = {grid.name: curves[f"{grid.name}/{curve}/ndcg@{cfg.k}"] for grid in grids}
        curves_figure(run, curve, ("round", f"nDCG@{cfg.k} of {label}"), at, shown)
    shown = {grid.name: curves[f"{grid.name}/forgotten"] for grid in grids}
    labels = ("round", "queries forgotten, of those seen")
    curves_figure(run, "forgotten", labels, rounds, shown)
    return results


@main.check
def check(cfg: DictConfig) -> None:
    """Check learners, points and the picture."""
    names = [grid.name for grid in learner_grids(cfg)]
    require("points", cfg.points, ">= 2", lambda x: x >= 2)
    for part in ("tools", "queries"):
        require(f"tsne.{part}", cfg.tsne[part], ">= 0", lambda x: x >= 0)
    if cfg.tsne.tools:
        require("tsne.learner", cfg.tsne.learner, f"one of {names}", lambda x: x in names)
        tsne.require_sklearn("tsne.tools=0")


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print levels, forgetting and move of each learner."""
    title = f"{cfg.dataset.name}, {cfg.document}, exposures={cfg.exposures}"
    for columns in TABLES:
        columns = [column.format(k=cfg.k) for column in columns]
        results_table(results, list(cfg.learners), columns, title)


def follow(
    learner: LearnerGrid,
    task: Task,
    order: Int[np.ndarray, "S T"],
    part: Bool[np.ndarray, " N"],
    metrics: Sequence[str],
    *,
    seeds: range,
    chunk: int,
    pause: Callable[[int], None],
) -> tuple[Float[np.ndarray, "S E m n"], jr.Run]:
    """Simulate a stream chunk by chunk, and rank queries before it and after each chunk.

    Returns:
      The metrics of every query at E points, and the run of the last chunk.
    """

    def ranked(run):
        values = jr.evaluate_each(run, task, metrics, part=part)
        return np.stack([values[name][:, part] for name in metrics], axis=1)

    nothing = np.full((len(seeds), 1), -1)
    run = jr.simulate(learner, task, order=nothing, seeds=seeds, chunk=chunk)
    found = [ranked(run)]
    for first in range(0, order.shape[1], chunk):
        pause(first)
        some = order[:, first : first + chunk]
        run = jr.simulate(learner, task, order=some, seeds=seeds, chunk=chunk, after=run)
        found.append(ranked(run))
    return np.stack(found, axis=1), run


def points(order: Int[np.ndarray, "S T"], chunk: int) -> Int[np.ndarray, " E"]:
    """Return the number of finished rounds before a stream and after each of its chunks."""
    return np.append(np.arange(0, order.shape[1], chunk), order.shape[1])


def by_arrival(
    values: Float[np.ndarray, "S E m n"],
    order: Int[np.ndarray, "S T"],
    streamed: Bool[np.ndarray, " N"],
) -> Float[np.ndarray, "S E m n"]:
    """Sort the queries of each seed by their first arrival in the stream."""
    some = np.flatnonzero(streamed)
    arrival = np.searchsorted(some, order[:, : len(some)])
    return np.take_along_axis(values, arrival[:, None, None, :], axis=-1)


def seen(
    values: Float[np.ndarray, "S E m n"], rounds: Int[np.ndarray, " E"]
) -> Float[np.ndarray, "S E-1 m"]:
    """Average over the queries that have arrived, from the second point on."""
    parts = [values[:, i, :, :many] for i, many in enumerate(rounds) if many]
    return np.stack([part.mean(axis=-1, dtype=np.float64) for part in parts], axis=1)


def forgotten(
    right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]
) -> Float[np.ndarray, "S E"]:
    """Compute the share of arrived queries that were right since arrival and now are wrong."""
    arrived = np.arange(right.shape[-1]) < rounds[:, None]
    ever = np.logical_or.accumulate(right & arrived, axis=1)
    return (ever & ~right).sum(axis=-1) / np.maximum(arrived.sum(axis=-1), 1)


def fates(
    right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]
) -> dict[str, Float[np.ndarray, " S"]]:
    """Compute `forgotten` and `drop` at the end, and the shares ``learnt`` and ``lost``.

    Learnt queries are wrong at first and right at the end, lost queries the reverse.
    """
    first, last = right[:, 0], right[:, -1]
    return {
        "learnt": (~first & last).mean(axis=-1),
        "lost": (first & ~last).mean(axis=-1),
        "forgotten": forgotten(right, rounds)[:, -1],
        "drop": drop(right, rounds),
    }


def drop(right: Bool[np.ndarray, "S E n"], rounds: Int[np.ndarray, " E"]) -> Float[np.ndarray, "S"]:
    """Compute forgetting as in Chaudhry et al. (2018), with the queries of a chunk as a task.

    It is the highest accuracy of a task at a point after its arrival and before the end, minus that
    at the end, averaged over tasks. It is negative if the end is best. There must be three points
    or more.
    """
    groups = np.split(right, [many for many in rounds[1:] if many < right.shape[-1]], axis=-1)
    drops = []
    for i, group in enumerate(groups[: len(rounds) - 2]):
        accuracy = group.mean(axis=-1)
        drops.append(accuracy[:, i + 1 : -1].max(axis=1) - accuracy[:, -1])
    return np.mean(drops, axis=0)


def moments(curve: Float[np.ndarray, "S E"]) -> dict[str, Float[np.ndarray, " S"]]:
    """Return first, middle and last value, and ``fall``, the largest decrease."""
    return {
        "first": curve[:, 0],
        "half": curve[:, (curve.shape[1] - 1) // 2],
        "last": curve[:, -1],
        "fall": (np.maximum.accumulate(curve, axis=1) - curve).max(axis=1),
    }


class Sample(NamedTuple):
    """The tools and queries whose vectors are plotted."""

    tools: Int[np.ndarray, " a"]
    queries: Int[np.ndarray, " b"]  # queries of the stream


def sample(cfg: DictConfig, task: Task, streamed: Bool[np.ndarray, " N"]) -> Sample:
    """Draw at most ``tsne.tools`` of all tools and ``tsne.queries`` of the streamed queries."""
    rng = np.random.default_rng(cfg.seed)
    return Sample(
        tools=rng.permutation(len(task.theta))[: cfg.tsne.tools],
        queries=rng.permutation(np.flatnonzero(streamed))[: cfg.tsne.queries],
    )


def row_moves(task: Task, streamed: Bool[np.ndarray, " N"], run: jr.Run) -> dict[str, np.ndarray]:
    """Compute `MOVES` of every seed, by the streamed queries."""
    queries, labels = task.queries[streamed], task.labels[streamed]
    needed, others = cosines(task.theta, queries, labels)
    found: dict[str, list[float]] = {name: [] for name in MOVES}
    for seed in run.seeds:
        state = run.state(seed)
        mapped = map_queries(run.learner_of(seed), state, jnp.asarray(queries))
        after = np.asarray(state.theta)
        then = cosines(after, np.asarray(mapped), labels)
        way = np.linalg.norm(unit(after) - unit(task.theta), axis=1).mean()
        for name, value in zip(MOVES, (needed, then[0], others, then[1], way), strict=True):
            found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


def cosines(
    theta: Float[np.ndarray, "I d"],
    queries: Float[np.ndarray, "N d"],
    labels: Int[np.ndarray, "N L"],
) -> tuple[float, float]:
    """Compute mean cosines of queries with the tools they need, and with all others."""
    theta, queries = unit(theta), unit(queries)
    which, column = np.nonzero(labels >= 0)
    needed = (queries[which] * theta[labels[which, column]]).sum()
    total = queries.sum(axis=0) @ theta.sum(axis=0)  # sum over all pairs, without their matrix
    others = len(queries) * len(theta) - len(which)
    return float(needed / len(which)), float((total - needed) / others)


def unit(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Scale rows to length 1, in float64."""
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def picture(
    cfg: DictConfig,
    run: RunDirectory,
    before: Float[np.ndarray, "a d"],
    after: Float[np.ndarray, "a d"],
    queries: Float[np.ndarray, "b d"],
) -> None:
    """Draw a t-SNE of rows before, rows after and queries; a line joins the rows of a tool."""

    def positions():
        every = np.concatenate([unit(vectors) for vectors in (before, after, queries)])
        return {"points": tsne.project(every, cfg.seed)}

    points = run.result("tsne", positions)["points"]
    first, then, query_points = np.split(points, [len(before), 2 * len(before)])
    figure, ax = plots.new_figure("t-SNE 1", "t-SNE 2")
    ax.scatter(*query_points.T, s=8, color=plots.GREY, alpha=0.5, linewidths=0, label="query")
    green, red = plots.COLOURS[2], plots.COLOURS[1]
    breaks = np.full_like(first, np.nan)
    ways = np.stack([first, then, breaks], axis=1).reshape(-1, 2)
    ax.plot(*ways.T, color=red, linewidth=0.8, alpha=0.7)
    ax.scatter(*first.T, s=22, marker="s", facecolors="none", edgecolors=green, label="tool before")
    ax.scatter(*then.T, s=16, marker="^", color=red, linewidths=0, label="tool after", zorder=3)
    ax.set(xticks=[], yticks=[])
    ax.margins(0.02)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handletextpad=0.1)
    run.save_figure(figure, "embeddings")


if __name__ == "__main__":
    main.cli()
