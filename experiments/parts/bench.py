"""One data set, parted, and every retrieval method on it by name.

    bm25, documents                 no training at all
    tool2vec_raw, tool2vec          means of training queries, as they are and of length 1
    nudge_m, nudge_n                documents moved towards training queries, closed form
    query2query, query2desc         Tool2Vec, and documents, with an encoder trained for them
    dpr, tool_embed                 documents, with an encoder trained by contrast
    mlc                             multi-label classification
    refiner_tool2vec, ...           ToolRefiner on a first stage, as its recipe says
    cross_encoder, tool_rank        every candidate read together with the query
    refit                           queries corrected by what a reranker says, a second search
    greedy, orag, orag+once, ...    documents moved by an online learner; +once: each query once

What needs training has a recipe of its name in the config group ``recipe``, an online learner a
config in the group ``learner``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int
from omegaconf import DictConfig

from experiments.parts import problem
from experiments.parts.config import plain
from experiments.parts.run import Run
from jaxret import encoders as encode
from jaxret import metrics
from jaxret.data.split import own_split as parts
from jaxret.retrieval import bm25, dense, nudge
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Retriever, search
from jaxret.retrieval.tool2vec import tool2vec

UNTRAINED = ("bm25", "documents", "tool2vec_raw", "tool2vec", "nudge_m", "nudge_n")
KEPT = 128  # items of a ranking that are kept

Rows = Int[np.ndarray, " M"]  # positions of queries


def metrics_at(cuts: Sequence[int]) -> tuple[str, ...]:
    """The names of what is measured."""
    return tuple(f"{metric}@{k}" for metric in ("recall", "ndcg") for k in cuts)


CUTS = (3, 5, 7)  # where models are validated, whatever is reported: others find them again
METRICS = metrics_at(CUTS)


class Bench:
    """Data, parts, and what every method needs of them."""

    def __init__(self, cfg: DictConfig, run: Run):
        self.cfg, self.run = cfg, run
        self.task = problem.load(cfg)
        self.parts = parts(self.task.dataset, **plain(cfg.split))
        self.recipes: dict[str, dict[str, Any]] = plain(cfg.recipes)
        self.kept = min(KEPT, len(self.task.theta_1))
        self.cache: Path | None = encode.cache_directory() if cfg.cache is None else Path(cfg.cache)
        self.tie_order: Int[np.ndarray, " I"] | None = self.task.tie_order

    def texts(self, rows: Rows) -> list[str]:
        """The queries as they are encoded."""
        return [self.task.texts[row] for row in rows]

    @property
    def masks(self) -> problem.Parts:
        """The parts as online learners take them: test queries are never streamed."""
        every = np.arange(len(self.task.queries))
        train, validation, test = (np.isin(every, part) for part in self.parts)
        return problem.Parts(validation=validation, heldout=test, training=train)

    @cached_property
    def trained_on(self) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "n L"]]:
        """Vectors and labels of the training queries."""
        train = self.parts.train
        return self.task.queries[train], self.task.labels[train]

    def usage(self, *, normalise: bool = True) -> Float[np.ndarray, "I d"]:
        """Tool2Vec of the training part."""
        make = jax.jit(tool2vec, static_argnames="normalise")
        return np.asarray(make(*self.trained_on, self.task.theta_1, normalise=normalise))

    def ranking(
        self, name: str, seed: int, tag: str, rows: Rows, compute: Callable[[], Ranking]
    ) -> Ranking:
        """What a method ranks for some queries, kept as a unit of the run."""
        found = self.run.result(f"{name}-{seed}-{tag}", lambda: compute()._asdict())
        assert len(found["items"]) == len(rows)
        return Ranking(**found)

    def search(self, retriever: Retriever, rows: Rows, *, progress: bool = True) -> Ranking:
        """The first stage's ranking, ties as trec_eval has them."""
        order = self.tie_order
        return search(retriever, self.texts(rows), self.kept, tie_order=order, progress=progress)

    def means(self, found: Ranking, rows: Rows, cuts: Sequence[int] = CUTS) -> dict[str, float]:
        """`metrics_at` the cuts, averaged: recall at the first cut comes first."""
        values = metrics.evaluate_ranking(found.items, self.task.labels[rows], cuts)
        return {
            name: float(np.asarray(values[name], np.float64).mean()) for name in metrics_at(cuts)
        }

    def untrained(self, name: str) -> Retriever:
        """The methods without a recipe."""
        if name == "bm25":
            return bm25.bm25(self.task.documents)
        vectors: Mapping[str, Callable[[], np.ndarray]] = {
            "documents": lambda: self.task.theta_1,
            "tool2vec_raw": lambda: self.usage(normalise=False),
            "tool2vec": self.usage,
            "nudge_m": lambda: self._nudged(nudge.nudge_m),
            "nudge_n": lambda: self._nudged(nudge.nudge_n),
        }
        if name not in vectors:
            known = ", ".join([*UNTRAINED, *self.recipes])
            raise ValueError(f"unknown method {name!r}; known: {known}")
        return dense.dense(name, vectors[name](), self.task.encoder, cache=self.cache)

    def _nudged(self, rule: Callable) -> Float[np.ndarray, "I d"]:
        chosen = self.parts.validation
        theta, _ = jax.jit(rule)(
            self.task.theta_1, *self.trained_on, self.task.queries[chosen], self.task.labels[chosen]
        )
        return np.asarray(theta)
