"""ToolRet's tasks, pools, texts and measures, for `experiments.evaluate_toolret`.

Letters: M queries of a task, P tools of a pool.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from experiments.common.run_directory import RunDirectory
from jaxret.data.toolret import CATEGORIES, Benchmark
from jaxret.encoders import ENCODERS
from jaxret.evaluation import metrics
from jaxret.retrieval.ranking import Ranking, in_trec_order, trec_order
from jaxret.retrieval.retriever import Retriever, Texts, search
from jaxret.runtime import sharding

SETTINGS = ("with", "without")  # with or without instruction
POOLS = ("all", "category")
MEASURES = ("ndcg", "recall", "completeness")

Rows: TypeAlias = Int[np.ndarray, " M"]  # positions of queries


class Request(NamedTuple):
    """The queries of a task under a setting."""

    task: str
    setting: str
    rows: Rows

    @property
    def name(self) -> str:
        return f"{self.task}-{self.setting}"


class World:
    """The benchmark, the queries that were drawn of each task, and the pools that are searched."""

    def __init__(self, cfg: DictConfig, run: RunDirectory, benchmark: Benchmark):
        self.cfg, self.run, self.benchmark = cfg, run, benchmark
        self.models: dict[str, dict[str, Any]] = plain(cfg.models)
        self.documents = [str(text) for text in benchmark.dataset.documents]
        self.tool_ids, self.labels = benchmark.dataset.tool_ids, benchmark.dataset.labels
        self.trec_order = trec_order(self.tool_ids)
        self.cache: Path | None = cache_folder(cfg)
        split = np.asarray(benchmark.dataset.split)
        self.rows = {task: self._drawn(np.flatnonzero(split == task)) for task in benchmark.tasks}

    def _drawn(self, rows: Rows) -> Rows:
        order = np.random.default_rng(self.cfg.seed).permutation(len(rows))
        return rows[np.sort(order[: self.cfg.limit])]

    def ids(self, rows: Rows) -> list[str]:
        """Returns the ids of queries, as in run files."""
        return [self.benchmark.ids[row] for row in rows]

    def texts(self, name: str, setting: str, rows: Rows) -> list[str]:
        """Renders the queries for a model.

        Without an instruction the template gets the model's ``uninstructed``, as in the authors'
        code, so most models still read the rest of the template.
        """
        model, instructed = self.models[name], setting == "with"
        bare = model["uninstructed"]
        bare = ENCODERS[model["encoder"]].instruction if bare is None else bare
        return [
            model["template"].format(
                query=self.benchmark.queries[row],
                instruction=(instructed and self.benchmark.instructions[row]) or bare,
            )
            for row in rows
        ]

    def pool(self, task: str) -> str | None:
        """Returns the category that is searched for a task; None for all tools."""
        return None if self.cfg.pool == "all" else self.benchmark.tasks[task]

    def members(self, pool: str | None) -> Int[np.ndarray, " P"]:
        """Returns the tools of a pool, as catalogue rows in the order of trec_eval's ties."""
        found = np.flatnonzero([pool in (None, own) for own in self.benchmark.pools])
        if not len(found):
            raise ValueError(f"there are no tools of category {pool!r}: search pool=all")
        return found[np.argsort(self.trec_order[found])]

    def search(self, retriever: Retriever, texts: Texts, pool: str | None) -> Ranking:
        """Finds the best tools of a pool, as rows of the whole catalogue."""
        members, cfg = self.members(pool), self.cfg
        found = search(
            retriever,
            texts,
            min(cfg.depth, len(members)),
            mesh=sharding.make_mesh(item=cfg.devices) if cfg.devices > 1 else None,
            chunk=cfg.chunk,
            progress=False,
        )
        return found._replace(items=members[found.items].astype(np.int32))


def measured(
    ranking: Ranking, labels: Int[np.ndarray, "M L"], order: Int[np.ndarray, " I"], k: int
) -> dict[str, Float[np.ndarray, " M"]]:
    """Computes nDCG, recall and completeness at k of every query, with trec_eval's ties."""
    items = in_trec_order(ranking, order).items
    items = np.pad(items, ((0, 0), (0, max(0, k - items.shape[1]))), constant_values=-1)
    values = metrics.evaluate_ranking(items, labels, [k])
    return {name: np.asarray(values[name], np.float64) for name in measures(k)}


def measures(k: int) -> tuple[str, ...]:
    """Returns the names of the metrics."""
    return tuple(f"{measure}@{k}" for measure in MEASURES)


def averages(
    of_tasks: Mapping[str, Mapping[str, np.ndarray]], categories: Mapping[str, str]
) -> dict[str, float]:
    """Computes the means that `experiments.evaluate_toolret` lists.

    Args:
      of_tasks: task -> metric -> one value per query.
      categories: category of each task.

    Returns:
      Means by ``which/metric``; without ``average`` if a category has no task.
    """
    found: dict[str, float] = {}
    for metric in next(iter(of_tasks.values())):
        task = {name: float(values[metric].mean()) for name, values in of_tasks.items()}
        found |= {f"task/{name}/{metric}": value for name, value in task.items()}
        found[f"tasks/{metric}"] = fmean(task.values())
        for category in CATEGORIES:
            if own := [name for name in task if categories[name] == category]:
                queries = np.concatenate([of_tasks[name][metric] for name in own])
                found[f"{category}/{metric}"] = fmean(task[name] for name in own)
                found[f"{category}/queries/{metric}"] = float(queries.mean())
        parts = [f"{category}/{metric}" for category in CATEGORIES]
        if all(part in found for part in parts):
            found[f"average/{metric}"] = fmean(found[part] for part in parts)
    return found


def counts(benchmark: Benchmark, rows: Mapping[str, Sequence[int] | Rows]) -> str:
    """Formats a line with the tools, tasks and queries of each category, since copies differ."""
    parts = []
    for category in CATEGORIES:
        tasks = [task for task, own in benchmark.tasks.items() if own == category]
        parts.append(
            f"{category} {benchmark.pools.count(category):,} tools, "
            f"{sum(len(rows[task]) for task in tasks):,} queries of {len(tasks)} tasks"
        )
    return "; ".join(parts)
