"""What was learnt, on disk: for whoever serves it, with jaxret's help or without.

    theta.npy                [I, d], the rows in the order of the ids
    embeddings.safetensors   theta; query_matrix [d, d] and query_offset [d] where a map was learnt;
                             available [I] where some tools are absent
    embeddings.json          ids, learner, settings, encoder, template of the documents, version

A query q is ranked by ``Theta (query_matrix q + query_offset)``, or by ``Theta q`` without a map,
over the tools that are available.

Letters: I items, d width, N queries, k items retrieved.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from jaxret.evaluation import metrics
from jaxret.learners.learner import Learner
from jaxret.learners.mixture import heaviest
from jaxret.learners.narrow_rows import wide
from jaxret.runtime import distributed
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.types import State

_FILE = "embeddings"


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """Rows, and the map of queries that they were learnt with."""

    ids: list[str]  # I
    theta: Float[np.ndarray, "I d"]
    query_matrix: Float[np.ndarray, "d d"] | None = None
    query_offset: Float[np.ndarray, " d"] | None = None
    available: Bool[np.ndarray, " I"] | None = None  # None: every tool is there
    facts: Mapping[str, Any] = field(default_factory=dict)  # learner, settings, encoder, document

    def map_queries(self, queries: Float[ArrayLike, "N d"]) -> Float[np.ndarray, "N d"]:
        """Queries as the rows are compared with them.

        Returns:
          [N, d].
        """
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.theta.shape[1]:
            width = self.theta.shape[1]
            raise ValueError(f"queries must be [N, {width}], got the shape {list(queries.shape)}")
        if self.query_matrix is None or self.query_offset is None:
            return queries
        return queries @ self.query_matrix.T + self.query_offset

    def scores(self, queries: Float[ArrayLike, "N d"]) -> Float[np.ndarray, "N I"]:
        """Inner products of mapped queries and rows.

        Returns:
          [N, I], minus infinity where a tool is absent.
        """
        scores = self.map_queries(queries) @ self.theta.T
        return scores if self.available is None else np.where(self.available, scores, -np.inf)

    def rank(self, queries: Float[ArrayLike, "N d"], k: int = 10) -> Int[np.ndarray, "N k"]:
        """The k best rows of each query, best first; ties as trec_eval has them.

        Returns:
          positions [N, k].
        """
        there = len(self.ids) if self.available is None else int(self.available.sum())
        require("k", k, f"in 1 .. {there}, the tools that are there", lambda k: 1 <= k <= there)
        place = metrics.tie_order(self.ids)
        return np.stack([np.lexsort((place, -row))[:k] for row in self.scores(queries)])

    def faiss(self) -> Any:
        """Makes a FAISS index of inner products, which answers with positions in ``ids``.

        Ask it for mapped queries (`map_queries`). It needs faiss.
        """
        try:
            import faiss
        except ImportError as error:
            raise ImportError(
                "a FAISS index needs faiss: pip install 'jaxret[faiss]', or faiss-cpu"
            ) from error
        rows = np.arange(len(self.ids))
        rows = rows if self.available is None else rows[self.available]
        index = faiss.IndexIDMap(faiss.IndexFlatIP(self.theta.shape[1]))
        index.add_with_ids(np.ascontiguousarray(self.theta[rows]), rows)
        return index

    def save(self, folder: str | Path) -> None:
        """Writes the three files; an existing folder is overwritten."""
        if not distributed.leads():
            return
        from safetensors.numpy import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"theta": np.ascontiguousarray(self.theta, np.float32)}
        if self.query_matrix is not None and self.query_offset is not None:
            arrays["query_matrix"] = np.ascontiguousarray(self.query_matrix, np.float32)
            arrays["query_offset"] = np.ascontiguousarray(self.query_offset, np.float32)
        if self.available is not None:
            arrays["available"] = np.ascontiguousarray(self.available)
        np.save(folder / "theta.npy", arrays["theta"])
        save_file(arrays, folder / f"{_FILE}.safetensors")
        described = {"ids": self.ids, **self.facts}
        (folder / f"{_FILE}.json").write_text(json.dumps(described, indent=2) + "\n")


def load_embeddings(folder: str | Path) -> Embeddings:
    """Reads what `Run.save` wrote.

    Raises:
      FileNotFoundError: where there is none.
      ValueError: where ids and rows do not go together, or a file is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(folder) / f"{_FILE}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no {_FILE}.json: write it with run.save({folder})")
    try:
        facts = json.loads(path.read_text())
        arrays = load_file(path.with_suffix(".safetensors"))
        ids, theta = facts.pop("ids"), arrays["theta"]
    except (ValueError, KeyError, OSError, SafetensorError) as error:
        raise ValueError(f"{folder} is damaged ({error}): save it again") from error
    if len(ids) != len(theta):
        raise ValueError(f"{folder} is damaged ({len(ids)} ids, {len(theta)} rows): save it again")
    return Embeddings(
        ids=ids,
        theta=theta,
        query_matrix=arrays.get("query_matrix"),
        query_offset=arrays.get("query_offset"),
        available=arrays.get("available"),
        facts=facts,
    )


def from_state(
    learner: Learner, state: State, task: Task, *, settings: Mapping[str, Any] | None = None
) -> Embeddings:
    """Reads the rows and the query map off a state.

    Every map of queries is affine, so the images of the origin and of the axes say all of it. A
    mixture has no one matrix of rows: what is read is that of the expert it believes most.
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
