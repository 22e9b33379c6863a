"""Learned embeddings of tools, in memory and on disk; the files can be read without jaxret.

    theta.npy                [I, d], the rows in the order of the ids
    embeddings.safetensors   theta; query_matrix [d, d] and query_offset [d] of a learned map;
                             available [I] where some tools are absent; usage_offset [I]
                             and prior_weight [] of a learner with offsets
    embeddings.json          ids, learner, settings, encoder, template of the documents, version
    embeddings.md            how to rank with these files

A query q with the prior scores x ranks the available tools by

    Theta (query_matrix q + query_offset) + prior_weight x + usage_offset

without the terms that are not in the files.

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
      prior_weight: weight of a query's prior scores; None: they are not read.
      usage_offset: correction for usage, added to each tool's score [I]; None: nothing.
      facts: learner, settings, encoder, document template, data set and version, as JSON values.
    """

    ids: list[str]
    theta: Float[np.ndarray, "I d"]
    query_matrix: Float[np.ndarray, "d d"] | None = None
    query_offset: Float[np.ndarray, " d"] | None = None
    available: Bool[np.ndarray, " I"] | None = None
    prior_weight: float | None = None
    usage_offset: Float[np.ndarray, " I"] | None = None
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

    def scores(
        self, queries: Float[ArrayLike, "N d"], prior: Float[ArrayLike, "N I"] | None = None
    ) -> Float[np.ndarray, "N I"]:
        """Compute the inner products of mapped queries and rows, and add the offsets.

        Args:
          queries: [N, d], before the map.
          prior: prior scores of the queries [N, I] (`jaxret.task.Task.prior_scores`), needed with a
            ``prior_weight``, and otherwise not read.

        Returns:
          scores [N, I], minus infinity for absent tools.

        Raises:
          ValueError: if prior scores are missing, or an array has another shape.
        """
        scores = self.map_queries(queries) @ self.theta.T
        if self.prior_weight is not None:
            if prior is None:
                raise ValueError(
                    f"these embeddings need prior scores, with the weight {self.prior_weight:.3g}: "
                    "give prior=task.prior_scores()"
                )
            given = np.asarray(prior, np.float32)
            require("the shape of prior", given.shape, f"{scores.shape}", scores.shape.__eq__)
            scores = scores + self.prior_weight * given
        scores = scores if self.usage_offset is None else scores + self.usage_offset
        return scores if self.available is None else np.where(self.available, scores, -np.inf)

    def rank(
        self,
        queries: Float[ArrayLike, "N d"],
        k: int = 10,
        prior: Float[ArrayLike, "N I"] | None = None,
    ) -> Int[np.ndarray, "N k"]:
        """Rank the available tools; of equal scores the earlier row ranks first.

        Args:
          queries: [N, d], before the map.
          k: length of the rankings, at most the number of available tools.
          prior: prior scores of the queries [N, I], needed with a ``prior_weight``.

        Returns:
          positions in ``ids`` [N, k], best first.

        Raises:
          ValueError: if k is out of its range, or the width of the vectors differs.
        """
        n = len(self.ids) if self.available is None else int(self.available.sum())
        require("k", k, f"in 1 .. {n}, the number of available tools", lambda k: 1 <= k <= n)
        return np.argsort(-self.scores(queries, prior), axis=1, kind="stable")[:, :k]

    def faiss(self) -> Any:
        """Build a FAISS index of inner products over the available tools.

        The index must be searched with mapped queries (`map_queries`) and returns positions in
        ``ids``. It leaves out prior scores and offsets: re-rank its results by `scores`.

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
        """Write the files, and overwrite those in an existing folder.

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
        if self.prior_weight is not None:
            arrays["prior_weight"] = np.asarray(self.prior_weight, np.float32)
        if self.usage_offset is not None:
            arrays["usage_offset"] = np.ascontiguousarray(self.usage_offset, np.float32)
        np.save(folder / "theta.npy", arrays["theta"])
        save_file(arrays, folder / f"{_FILE}.safetensors")
        described = {"ids": self.ids, **self.facts}
        (folder / f"{_FILE}.json").write_text(json.dumps(described, indent=2) + "\n")
        (folder / f"{_FILE}.md").write_text(_explained(arrays))


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
        prior_weight=None if (weight := arrays.get("prior_weight")) is None else float(weight),
        usage_offset=arrays.get("usage_offset"),
        facts=facts,
    )


def _explained(arrays: Mapping[str, np.ndarray]) -> str:
    """Describe how to rank with the arrays of a folder."""
    query = "query_matrix @ q + query_offset" if "query_matrix" in arrays else "q"
    terms = [f"theta @ ({query})" if "query_matrix" in arrays else f"theta @ {query}"]
    notes = ["q is the vector of a query, by the encoder that embeddings.json names."]
    if "prior_weight" in arrays:
        terms.append("prior_weight * x")
        notes.append(
            "x holds the prior scores of the query, one per tool: the match of its words with the "
            "documents\n(`jaxret.encoders.lexical`), unless the task was given others."
        )
    if "usage_offset" in arrays:
        terms.append("usage_offset")
        notes.append("usage_offset corrects for how often each tool is retrieved.")
    if "available" in arrays:
        notes.append("Leave out the tools where available is false.")
    lines = ["# Embeddings of tools", "", "The score of each tool for a query, best first:", ""]
    lines += [f"    scores = {' + '.join(terms)}", "", *notes, ""]
    lines += ["The arrays are in embeddings.safetensors, the ids of the rows in embeddings.json."]
    return "\n".join(lines) + "\n"
