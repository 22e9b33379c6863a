"""Do longer documents dilute similarity? (Tool-REX, Section 4.2, Figure 4)

For each query it compares the similarity with a right tool (positive) and with a wrong tool
(negative) under two texts of the documents. In the paper (GritLM, 100 queries per domain) both fall
when documents are expanded, by 0.001 to 0.003 for positives and 0.004 to 0.015 for negatives, so
the margin grows. The paper does not say how negatives are chosen, which matters: here they are
``random``, or ``hard``, the best wrong tools under the original documents. Hard negatives are
selected for a high cosine, so part of their fall is regression to the mean; random ones have no
such bias.

Letters: N queries, n of them sampled, I tools, L labels a query, d width.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxret.runtime.validate import require

Kind = Literal["random", "hard"]
KINDS: tuple[Kind, ...] = ("random", "hard")


class Triples(NamedTuple):
    """Positions of queries and of a right and a wrong tool of each."""

    query: Int[np.ndarray, " n"]
    positive: Int[np.ndarray, " n"]
    negative: Int[np.ndarray, " n"]


class Similarity(NamedTuple):
    """Cosines of the queries of some triples with their two tools."""

    positive: Float[np.ndarray, " n"]
    negative: Float[np.ndarray, " n"]

    @property
    def margin(self) -> Float[np.ndarray, " n"]:
        """Cosine with the right tool minus cosine with the wrong tool."""
        return self.positive - self.negative


def triples(
    queries: Float[np.ndarray, "N d"],
    labels: Int[np.ndarray, "N L"],
    theta: Float[np.ndarray, "I d"],
    *,
    negatives: Kind,
    n: int | None = None,
    seed: int = 0,
) -> Triples:
    """Draws queries, and a right and a wrong tool for each.

    Args:
      queries: unit vectors.
      labels: right tools, -1 pads.
      theta: the original documents' unit vectors; ``hard`` negatives are the best under them.
      negatives: one of `KINDS`.
      n: how many queries; None takes all, in order.
      seed: seed of queries and tools; the queries are the same for both kinds of negatives.

    Raises:
      ValueError: n is out of range, the kind unknown, or a query needs every tool.
    """
    total, items = len(labels), len(theta)
    require("n", n, f"None or in 1 .. {total}", lambda n: n is None or 1 <= n <= total)
    require("negatives", negatives, f"one of {', '.join(KINDS)}", lambda kind: kind in KINDS)
    rng = np.random.default_rng(seed)
    rows = np.arange(total) if n is None else np.sort(rng.permutation(total)[:n])
    right = np.zeros((len(rows), items), bool)
    which, column = np.nonzero(labels[rows] >= 0)
    right[which, labels[rows][which, column]] = True
    if right.all(axis=1).any():
        raise ValueError(f"query {rows[right.all(axis=1).argmax()]} needs every tool: no negative")
    drawn = rng.random(right.shape)
    positive = np.where(right, drawn, -1.0).argmax(axis=1)
    liking = drawn if negatives == "random" else queries[rows] @ theta.T
    negative = np.where(right, -np.inf, liking).argmax(axis=1)
    return Triples(query=rows, positive=positive, negative=negative)


def similarity(
    queries: Float[np.ndarray, "N d"], theta: Float[np.ndarray, "I d"], chosen: Triples
) -> Similarity:
    """Computes the cosines under one text of the documents, of unit vectors, in float64."""
    vectors, tools = (np.asarray(x, np.float64) for x in (queries, theta))
    rows = vectors[chosen.query]
    return Similarity(
        positive=np.sum(rows * tools[chosen.positive], axis=1),
        negative=np.sum(rows * tools[chosen.negative], axis=1),
    )
