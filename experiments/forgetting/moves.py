"""Moves of tools' rows: cosines with queries before and after, a picture.     (ORAG Figure 1b)"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.run_directory import RunDirectory
from experiments.common.tsne import project
from jaxret.evaluation import plots
from jaxret.learners.learner import map_queries
from jaxret.task import Task

MEASURES = ("needed/before", "needed/after", "others/before", "others/after", "moved")


class Sample(NamedTuple):
    """The tools and queries whose vectors are plotted."""

    tools: Int[np.ndarray, " a"]
    queries: Int[np.ndarray, " b"]  # queries of the stream


def sample(cfg: DictConfig, task: Task, streamed: Bool[np.ndarray, " N"]) -> Sample:
    """Draws at most ``tsne.tools`` of all tools and ``tsne.queries`` of the streamed queries."""
    rng = np.random.default_rng(cfg.seed)
    return Sample(
        tools=rng.permutation(len(task.theta))[: cfg.tsne.tools],
        queries=rng.permutation(np.flatnonzero(streamed))[: cfg.tsne.queries],
    )


def measure(task: Task, streamed: Bool[np.ndarray, " N"], run: jr.Run) -> dict[str, np.ndarray]:
    """Computes `MEASURES` of every seed.

    Args:
      task: task with the initial rows and the queries.
      streamed: mask of the queries for the cosines.
      run: run of the stream.

    Returns:
      ``needed`` and ``others``, see `cosines`; ``moved``, the distance between a tool's row before
      and after, both scaled to length 1 (so at most 2), averaged over all tools.
    """
    queries, labels = task.queries[streamed], task.labels[streamed]
    needed, others = cosines(task.theta, queries, labels)
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for seed in run.seeds:
        state = run.state(seed)
        mapped = map_queries(run.learner_of(seed), state, jnp.asarray(queries))
        after = np.asarray(state.theta)
        then = cosines(after, np.asarray(mapped), labels)
        way = np.linalg.norm(unit(after) - unit(task.theta), axis=1).mean()
        for name, value in zip(MEASURES, (needed, then[0], others, then[1], way), strict=True):
            found[name].append(value)
    return {name: np.array(values) for name, values in found.items()}


def cosines(
    theta: Float[np.ndarray, "I d"],
    queries: Float[np.ndarray, "N d"],
    labels: Int[np.ndarray, "N L"],
) -> tuple[float, float]:
    """Computes mean cosines of queries with the tools they need, and with all others."""
    theta, queries = unit(theta), unit(queries)
    which, column = np.nonzero(labels >= 0)
    needed = (queries[which] * theta[labels[which, column]]).sum()
    total = queries.sum(axis=0) @ theta.sum(axis=0)  # sum over all pairs, without their matrix
    others = len(queries) * len(theta) - len(which)
    return float(needed / len(which)), float((total - needed) / others)


def unit(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Scales rows to length 1, in float64."""
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def picture(
    cfg: DictConfig,
    run: RunDirectory,
    before: Float[np.ndarray, "a d"],
    after: Float[np.ndarray, "a d"],
    queries: Float[np.ndarray, "b d"],
) -> None:
    """Draws a t-SNE of rows before, rows after and queries; a line joins the rows of a tool."""

    def positions():
        every = np.concatenate([unit(vectors) for vectors in (before, after, queries)])
        return {"points": project(every, cfg.seed)}

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
