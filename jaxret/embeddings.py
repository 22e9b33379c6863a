"""Learned embeddings of tools, in memory and on disk; the files can be read without jaxret.

    theta.npy                [I, d], the rows in the order of the ids
    embeddings.safetensors   theta; query_matrix [d, d] and query_offset [d] of a learned map;
                             available [I] where some tools are absent
    embeddings.json          ids, learner, settings, encoder, template of the documents, version

A query q ranks the available tools by ``Theta (query_matrix q + query_offset)``, or by ``Theta q``
without a learned map.

Letters: I items, d width, N queries, k items retrieved.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from jaxret.runtime import distributed
from jaxret.runtime.validate import require

_FILE = "embeddings"


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """Embeddings of tools, and the map of queries that was learned with them.

    Attributes:
      ids: ids of the I tools.
      theta: embeddings [I, d].
      query_matrix: matrix of the map [d, d]; None: queries are not mapped.
      query_offset: offset of the map [d]; None: no offset.
      available: mask of the available tools [I]; None: all tools.
      facts: learner, settings, encoder, document template, data set and version, as JSON values.
    """

    ids: list[str]
    theta: Float[np.ndarray, "I d"]
    query_matrix: Float[np.ndarray, "d d"] | None = None
    query_offset: Float[np.ndarray, " d"] | None = None
    available: Bool[np.ndarray, " I"] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def map_queries(self, queries: Float[ArrayLike, "N d"]) -> Float[np.ndarray, "N d"]:
        """Apply the learned map of queries; without one, return the queries.

        Args:
          queries: [N, d].

        Returns:
          Vectors that are multiplied with the rows [N, d].

        Raises:
          ValueError: if the width of the vectors differs.
        """
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.theta.shape[1]:
            width = self.theta.shape[1]
            raise ValueError(f"queries must be [N, {width}], got the shape {list(queries.shape)}")
        if self.query_matrix is None or self.query_offset is None:
            return queries
        return queries @ self.query_matrix.T + self.query_offset

    def scores(self, queries: Float[ArrayLike, "N d"]) -> Float[np.ndarray, "N I"]:
        """Compute the inner products of mapped queries and rows.

        Args:
          queries: [N, d], before the map.

        Returns:
          scores [N, I], minus infinity for absent tools.
        """
        scores = self.map_queries(queries) @ self.theta.T
        return scores if self.available is None else np.where(self.available, scores, -np.inf)

    def rank(self, queries: Float[ArrayLike, "N d"], k: int = 10) -> Int[np.ndarray, "N k"]:
        """Rank the available tools; of equal scores the earlier row ranks first.

        Args:
          queries: [N, d], before the map.
          k: length of the rankings, at most the number of available tools.

        Returns:
          positions in ``ids`` [N, k], best first.

        Raises:
          ValueError: if k is out of its range, or the width of the vectors differs.
        """
        n = len(self.ids) if self.available is None else int(self.available.sum())
        require("k", k, f"in 1 .. {n}, the number of available tools", lambda k: 1 <= k <= n)
        return np.argsort(-self.scores(queries), axis=1, kind="stable")[:, :k]

    def faiss(self) -> Any:
        """Build a FAISS index of inner products over the available tools.

        The index must be searched with mapped queries (`map_queries`) and returns positions in
        ``ids``.

        Raises:
          ImportError: if faiss is not installed.
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
        """Write the three files, and overwrite those in an existing folder.

        Args:
          folder: folder to write; created if missing.
        """
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
    """Read embeddings that `Run.save` or `Embeddings.save` wrote.

    Raises:
      FileNotFoundError: if the folder holds no embeddings.
      ValueError: if the numbers of ids and rows differ, or a file is damaged.
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
