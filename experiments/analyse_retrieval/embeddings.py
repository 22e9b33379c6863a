"""Cosines and a t-SNE of untrained documents, Tool2Vec's rows and queries."""

import numpy as np
from jaxtyping import Float, Int

from experiments.analyse_retrieval.boxes import boxes
from experiments.common import tsne
from experiments.retrieval.bench import Bench
from jaxret.evaluation import plots
from jaxret.methods.tool2vec import embeddings

QUARTILES = {"q25": 25, "median": 50, "q75": 75}


def cosines(bench: Bench, results: dict[str, np.ndarray]) -> None:
    """Computes the cosines of Figure 3, right."""
    task, parts, train = bench.task, bench.parts, bench.tasks.train
    usage = embeddings(train)
    groups = {
        "documents": similarities(task.queries[parts.test], task.labels[parts.test], task.theta),
        "tool2vec": similarities(task.queries[parts.test], task.labels[parts.test], usage),
        "tool2vec/train": similarities(train.queries, train.labels, usage),
    }
    for name, sides in groups.items():
        results[f"cosine/{name}/auc"] = np.array([auc(**sides)])
        for side, values in sides.items():
            found = np.percentile(values, list(QUARTILES.values()))
            for quartile, value in zip(QUARTILES, found, strict=True):
                results[f"cosine/{name}/{side}/{quartile}"] = np.array([value])
    bench.run.save_figure(boxes(groups, "cosine with the query"), "cosines")


def similarities(
    queries: Float[np.ndarray, "M d"], labels: Int[np.ndarray, "M L"], tools: np.ndarray
) -> dict[str, Float[np.ndarray, " P"]]:
    """Returns cosines of queries with the tools they need, and with all others, of unit vectors."""
    right = np.zeros((len(queries), len(tools)), bool)
    which, column = np.nonzero(labels >= 0)
    right[which, labels[which, column]] = True
    every = queries @ tools.T
    return {"positive": every[right], "negative": every[~right]}


def auc(positive: Float[np.ndarray, " P"], negative: Float[np.ndarray, " Q"]) -> float:
    """Computes the probability that a positive is above a negative; ties count one half."""
    ordered = np.sort(negative)
    below, upto = (np.searchsorted(ordered, positive, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(negative)))


def neighbours(bench: Bench, results: dict[str, np.ndarray]) -> None:
    """Draws Figure 3, left, and computes its nearest cosines."""
    cfg, task = bench.cfg, bench.task
    rng = np.random.default_rng(cfg.seed)
    queries = task.queries[rng.permutation(bench.parts.test)[: cfg.tsne.queries]]
    used = np.unique(bench.tasks.train.labels)  # tools with training queries, so with a Tool2Vec
    tools = rng.permutation(used[used >= 0])[: cfg.tsne.tools]
    usage = embeddings(bench.tasks.train)
    groups = {"query": queries, "Tool2Vec": usage[tools], "document": task.theta[tools]}
    for name, vectors in groups.items():
        near = vectors @ queries.T
        if name == "query":
            np.fill_diagonal(near, -1.0)
        results[f"nearest/{name}"] = np.array([near.max(axis=1).mean()])

    def positions():
        return {"points": tsne.project(np.concatenate(list(groups.values())), cfg.seed)}

    points = bench.run.result("tsne", positions)["points"]
    figure, ax = plots.new_figure("t-SNE 1", "t-SNE 2")
    ends = np.cumsum([len(vectors) for vectors in groups.values()])
    looks = (("o", 8, plots.COLOURS[5]), ("^", 18, plots.COLOURS[1]), ("s", 10, plots.COLOURS[2]))
    for name, part, (marker, size, colour) in zip(
        groups, np.split(points, ends[:-1]), looks, strict=True
    ):
        ax.scatter(*part.T, s=size, marker=marker, color=colour, linewidths=0, label=name)
    ax.set(xticks=[], yticks=[])
    ax.margins(0.02)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handletextpad=0.1)
    bench.run.save_figure(figure, "tsne")
