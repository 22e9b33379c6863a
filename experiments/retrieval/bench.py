"""A data set cut into parts, with the recipes and rankings that retrieval experiments share."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from omegaconf import DictConfig

import jaxret as jr
from experiments.common.config import cache_folder, plain
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from jaxret.data.split import own_split
from jaxret.methods.common import KEPT
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Retriever, search
from jaxret.task import Parts, Split
from jaxret.training.store import Hooks

Rows = Int[np.ndarray, " M"]  # positions of queries


class Bench:
    """The data, parts and recipes of a config, and rankings that are kept in its run.

    Args:
      cfg: with ``dataset``, ``encoder``, ``document``, ``split`` and ``recipes``.
      run: keeps the rankings.
    """

    def __init__(self, cfg: DictConfig, run: RunDirectory):
        self.cfg, self.run = cfg, run
        self.task = replace(task_of(cfg), name=cfg.dataset.name)
        assert self.task.dataset is not None
        assert isinstance(self.task.encoder, jr.TextEncoder)
        self.encoder = self.task.encoder
        self.parts = own_split(self.task.dataset, **plain(cfg.split))  # positions
        self.recipes: dict[str, dict[str, Any]] = plain(cfg.recipes)
        self.kept = min(KEPT, len(self.task.ids))
        self.cache: Path | None = cache_folder(cfg)

    @cached_property
    def tasks(self) -> Split:
        """The parts as tasks."""
        return Split(*(self.task.select(rows) for rows in self.parts))

    @property
    def hooks(self) -> Hooks:
        """Connect training with the run: what it tracks, and when it stops."""
        return Hooks(tracker=self.run.tracker, interrupted=self.run.interrupted, say=print)

    @property
    def masks(self) -> Parts:
        """The parts as masks [N], for online learners: test queries are held out."""
        every = np.arange(len(self.task))
        train, validation, test = (np.isin(every, part) for part in self.parts)
        return Parts(training=train, validation=validation, heldout=test)

    def texts(self, rows: Rows) -> list[str]:
        """Return the texts of some queries, as they are encoded."""
        assert self.task.texts is not None
        return [self.task.texts[row] for row in rows]

    def ranking(self, name: str, seed: int, part: str, compute: Callable[[], Ranking]) -> Ranking:
        """Compute the ranking of a part by a method of a seed, or read it from the run."""
        found = self.run.result(f"{name}-{seed}-{part}", lambda: compute()._asdict())
        assert len(found["items"]) == len(getattr(self.parts, part))
        return Ranking(**found)

    def search(self, retriever: Retriever, part: str) -> Ranking:
        """Rank the queries of a part by a first stage; of equal scores the earlier row wins."""
        texts = self.texts(getattr(self.parts, part))
        return search(retriever, texts, self.kept)
