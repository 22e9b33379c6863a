"""Tool2Vec: a tool's embedding is the mean of the queries that used it.

    v_i = mean of q over the training queries with label i          (Tool2Vec, Section 4.1, Fig. 4)

The mean of unit vectors is shorter than 1, the more so the more widely a tool is used, and a dot
product then favours tools with narrow use. The paper does not say whether it scales the mean back
to length 1 and its evaluation code does not; we do by default, because on ToolLens that alone
lifts R@5 from 0.445 to 0.690 with frozen MiniLM (`experiments.evaluate_retrieval`).

Letters: N queries, L labels a query, I tools, d width.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from jaxret.retrieval.retriever import Retriever
from jaxret.validate import require


def tool2vec(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    documents: Float[Array, "I d"],
    *,
    normalise: bool = True,
    mix: float = 1.0,
) -> Float[Array, "I d"]:
    """Tool embeddings from usage; a tool without usage keeps its document.

    Args:
      queries: unit vectors of the training queries.
      labels: the tools that each used, -1 pads.
      documents: unit vectors of the tools' documents.
      normalise: scales the means, and the mixtures, to length 1; False is the reference.
      mix: weight of usage against the document, in [0, 1].

    Returns:
      ``mix v_i + (1 - mix) document_i``, and ``document_i`` where no query used tool i.
    """
    require("mix", mix, "in [0, 1]", lambda weight: 0 <= weight <= 1)
    uses, sums = usage(queries, labels, len(documents))
    means = sums / jnp.maximum(uses, 1)[:, None]
    if normalise:
        means = _unit(means)
    mixed = mix * means + (1 - mix) * documents
    if normalise:
        mixed = _unit(mixed)
    return jnp.where(uses[:, None] > 0, mixed, documents)


def usage(
    queries: Float[Array, "N d"], labels: Int[Array, "N L"], items: int
) -> tuple[Float[Array, " I"], Float[Array, "I d"]]:
    """How often each tool was used, and the sum of the queries that used it."""
    rows = jnp.where(labels >= 0, labels, items).reshape(-1)  # pads fall into a row past the end
    ones = jnp.ones(len(rows), queries.dtype)
    each = jnp.repeat(queries, labels.shape[1], axis=0)
    uses = jax.ops.segment_sum(ones, rows, items + 1)[:items]
    return uses, jax.ops.segment_sum(each, rows, items + 1)[:items]


def _unit(rows):
    length = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows / jnp.where(length > 0, length, 1)


def left_out(
    queries: Float[Array, "N d"], labels: Int[Array, "N L"], documents: Float[Array, "I d"]
) -> Retriever:
    """Tool2Vec for its own training queries, each left out of the means of its tools.

    A query is part of the means of its own tools, so among training queries these look better than
    they will to new ones. A second stage that learns from such candidates learns to trust them too
    much. In the place of texts `search` takes positions of training queries here, [M, 1].

    Args:
      queries: as `tool2vec` takes them.
      labels: likewise.
      documents: likewise. Means are scaled to length 1.
    """
    vectors, tools = np.asarray(queries), np.asarray(labels)
    uses, sums = usage(queries, labels, len(documents))

    def read(positions):
        rows = np.asarray(positions).reshape(-1)
        return {"query": vectors[rows], "labels": tools[rows]}

    return Retriever(
        name="tool2vec, left out",
        read=read,
        params={"uses": uses, "sums": sums, "documents": documents, "row": jnp.arange(len(uses))},
        score=_left_out_scores,
        split=(dict.fromkeys(("uses", "sums", "documents", "row"), P("item")), P()),
        items=len(documents),
    )


def _left_out_scores(params, features):
    query, uses, sums = features["query"], params["uses"], params["sums"]
    own = (params["row"][None, :, None] == features["labels"][:, None, :]).any(axis=2)  # [B, I]
    with_query = jnp.matmul(query, sums.T, precision=Precision.HIGHEST)  # S_i . q
    squared = (sums * sums).sum(axis=1)[None] - own * (2 * with_query - 1)  # |S_i - q|^2
    scores = (with_query - own) / jnp.sqrt(jnp.maximum(squared, 1e-12))
    left = uses[None] - own
    documents = jnp.matmul(query, params["documents"].T, precision=Precision.HIGHEST)
    return jnp.where(left > 0.5, scores, documents)
