"""One data set, parted: what every retrieval method of an experiment works on."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from omegaconf import DictConfig

from experiments.common.config import cache_folder, plain
from experiments.common.loading import load_task
from experiments.common.run_directory import RunDirectory
from jaxret.data.masks import Masks
from jaxret.data.split import own_split
from jaxret.methods.common import KEPT
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Retriever, search
from jaxret.task import Split
from jaxret.training.store import Hooks

Rows = Int[np.ndarray, " M"]  # positions of queries


class Bench:
    """Data, parts, recipes, and rankings that are kept."""

    def __init__(self, cfg: DictConfig, run: RunDirectory):
        self.cfg, self.run = cfg, run
        self.task = replace(load_task(cfg), name=cfg.dataset.name)
        self.encoder = self.task.encoder
        self.parts = own_split(self.task.dataset, **plain(cfg.split))  # positions
        self.recipes: dict[str, dict[str, Any]] = plain(cfg.recipes)
        self.kept = min(KEPT, len(self.task.ids))
        self.cache: Path | None = cache_folder(cfg)
        self.tie_order: Int[np.ndarray, " I"] | None = self.task.tie_order

    @cached_property
    def tasks(self) -> Split:
        """The parts as tasks of their own."""
        return Split(*(self.task.select(rows) for rows in self.parts))

    @property
    def hooks(self) -> Hooks:
        """What looks on while something is trained: this run."""
        return Hooks(tracker=self.run.tracker, interrupted=self.run.interrupted, say=print)

    @property
    def masks(self) -> Masks:
        """The parts as online learners take them: test queries are never streamed."""
        every = np.arange(len(self.task))
        train, validation, test = (np.isin(every, part) for part in self.parts)
        return Masks(validation=validation, heldout=test, training=train)

    def texts(self, rows: Rows) -> list[str]:
        """The queries as they are encoded."""
        return [self.task.texts[row] for row in rows]

    def ranking(self, name: str, seed: int, part: str, compute: Callable[[], Ranking]) -> Ranking:
        """What a method ranks for the queries of a part, kept as a unit of the run."""
        found = self.run.result(f"{name}-{seed}-{part}", lambda: compute()._asdict())
        assert len(found["items"]) == len(getattr(self.parts, part))
        return Ranking(**found)

    def search(self, retriever: Retriever, part: str) -> Ranking:
        """A first stage's ranking of a part, ties as trec_eval has them."""
        texts = self.texts(getattr(self.parts, part))
        return search(retriever, texts, self.kept, tie_order=self.tie_order)
