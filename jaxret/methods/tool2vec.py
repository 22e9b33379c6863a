"""Tool2Vec: a tool's embedding is the mean of the queries that used the tool.

    v_i = mean of q over the training queries with label i          (Tool2Vec, Section 4.1, Fig. 4)

    retriever = fit(train, Config())
    ranking = search(retriever, texts, k=10)

The mean of unit vectors is shorter than 1, and the shorter the more varied the use of the tool, so
that inner products favour tools with narrow use. The paper does not say whether it scales the means
to length 1, and its evaluation code does not. We scale by default: on ToolLens that alone lifts R@5
from 0.446 to 0.688 with frozen MiniLM (`experiments.evaluate_retrieval`). An encoder is tuned for
Tool2Vec by the objective query2query of `jaxret.methods.encoder_tuning`.

Letters: N queries, L labels per query, I tools, d width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.encoders import Encoder
from jaxret.methods.common import FirstStage
from jaxret.retrieval.dense import dense, inner_product
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Retriever, search
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.types import Params


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the means.

    Raises:
      ValueError: for a weight outside of [0, 1].
    """

    normalise: bool = True  # scales the means to length 1; the reference does not
    mix: float = 1.0  # weight of the mean; the document has 1 - mix

    def __post_init__(self):
        require("mix", self.mix, "in [0, 1]", lambda weight: 0 <= weight <= 1)


def fit(
    task: Task, config: Config, *, name: str = "tool2vec", cache: Path | None = None
) -> Retriever:
    """Make a retriever from the usage of a training task.

    Args:
      task: the training queries, their tools and the documents.
      config: the settings.
      name: shown in the progress bar and in errors.
      cache: folder for the vectors of new queries; None keeps nothing.

    Returns:
      a retriever of texts, or of vectors where the task has no encoder.
    """
    retriever = dense(name, embeddings(task, config), task.encoder, cache=cache)
    return retriever._replace(config=config)


def build(config: Any, params: Params, encoder: Encoder | None, name: str) -> Retriever:
    """Make the retriever of saved rows.

    Args:
      config: the settings, Tool2Vec's or NUDGE's.
      params: the tools' vectors [I, d].
      encoder: encoder of the queries; None where they are vectors.
      name: shown in the progress bar and in errors.
    """
    return dense(name, params, encoder)._replace(config=config)


def embeddings(task: Task, config: Config = Config()) -> Float[np.ndarray, "I d"]:
    """Compute Tool2Vec's embeddings of a training task.

    Returns:
      one row per tool [I, d], on the host.

    Raises:
      ValueError: if the task has no queries.
    """
    task.require_queries()
    make = jax.jit(tool2vec, static_argnames=("normalise", "mix"))
    arrays = (task.queries, task.labels, task.theta)
    return np.asarray(make(*arrays, normalise=config.normalise, mix=config.mix))


def tool2vec(
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    documents: Float[Array, "I d"],
    *,
    normalise: bool = True,
    mix: float = 1.0,
) -> Float[Array, "I d"]:
    """Compute tool embeddings from usage.

    Args:
      queries: unit vectors of the training queries [N, d].
      labels: the tools of each query [N, L], padded with -1.
      documents: unit vectors of the tools' documents [I, d].
      normalise: scales the means, and the mixtures, to length 1; the reference does not.
      mix: weight of the mean, in [0, 1].

    Returns:
      rows [I, d]: ``mix v_i + (1 - mix) document_i``, or ``document_i`` where no query used tool i.

    Raises:
      ValueError: for a weight outside [0, 1].
    """
    require("mix", mix, "in [0, 1]", lambda weight: 0 <= weight <= 1)
    uses, sums = usage(queries, labels, len(documents))
    means = sums / jnp.maximum(uses, 1)[:, None]
    if normalise:
        means = unit_rows(means)
    mixed = mix * means + (1 - mix) * documents
    if normalise:
        mixed = unit_rows(mixed)
    return jnp.where(uses[:, None] > 0, mixed, documents)


def usage(
    queries: Float[Array, "N d"], labels: Int[Array, "N L"], items: int
) -> tuple[Float[Array, " I"], Float[Array, "I d"]]:
    """Count and sum the queries that used each tool.

    Args:
      queries: vectors of the queries [N, d].
      labels: the tools of each query [N, L], padded with -1.
      items: the number of tools, I.

    Returns:
      the counts [I] and the sums [I, d]; 0 for a tool that no query used.
    """
    rows = jnp.where(labels >= 0, labels, items).reshape(-1)  # padding goes to a row past the end
    ones = jnp.ones(len(rows), queries.dtype)
    each = jnp.repeat(queries, labels.shape[1], axis=0)
    uses = jax.ops.segment_sum(ones, rows, items + 1)[:items]
    return uses, jax.ops.segment_sum(each, rows, items + 1)[:items]


def unit_rows(rows: Float[Array, "I d"]) -> Float[Array, "I d"]:
    """Return the rows scaled to length 1; rows of zeros stay.

    Returns:
      the rows [I, d].
    """
    length = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows / jnp.where(length > 0, length, 1)


def own_left_out(
    queries: Float[ArrayLike, "N d"],
    labels: Int[ArrayLike, "N L"],
    documents: Float[ArrayLike, "I d"],
) -> Callable[[Int[np.ndarray, " B"]], Float[np.ndarray, "B L d"]]:
    """Compute leave-one-out embeddings of training queries' own tools.

    A training query is part of the means of its own tools, which are therefore closer to it than to
    new queries, most of all for tools with few queries. A reranker trained on such means learns to
    recognise a query in its own mean. Leaving the query out is ours.

    Args:
      queries: unit vectors of the training queries [N, d].
      labels: the tools of each query [N, L], padded with -1.
      documents: unit vectors of the tools' documents [I, d].

    Returns:
      a function on the host from positions of queries [B] to the embeddings of their tools
      [B, L, d], each a mean over the other queries, scaled to length 1. Rows of padding are
      undefined.
    """
    vectors, tools, texts = np.asarray(queries), np.asarray(labels), np.asarray(documents)
    uses, sums = map(np.asarray, usage(jnp.asarray(vectors), jnp.asarray(tools), len(texts)))

    def without(rows):
        own = tools[rows]
        rest = sums[own] - vectors[rows][:, None]
        length = np.linalg.norm(rest, axis=2, keepdims=True)
        alone = (uses[own] < 1.5)[..., None]  # no other query used the tool
        return np.where(alone, texts[own], rest / np.where(alone | (length == 0), 1, length))

    return without


def left_out(
    queries: Float[ArrayLike, "N d"],
    labels: Int[ArrayLike, "N L"],
    documents: Float[ArrayLike, "I d"],
) -> Retriever:
    """Make a Tool2Vec retriever that leaves each training query out of the means of its tools.

    Args:
      queries: unit vectors of the training queries [N, d].
      labels: the tools of each query [N, L], padded with -1.
      documents: unit vectors of the tools' documents [I, d].

    Returns:
      a retriever that reads positions of training queries [M, 1] in place of texts.
    """
    vectors, tools = np.asarray(queries), np.asarray(labels)
    without = own_left_out(queries, labels, documents)

    def read(positions):
        rows = np.asarray(positions).reshape(-1)
        return {"query": vectors[rows], "labels": tools[rows], "own": without(rows)}

    theta = tool2vec(*map(jnp.asarray, (queries, labels, documents)))
    return Retriever(
        name="tool2vec, left out",
        read=read,
        params={"theta": theta, "row": jnp.arange(len(theta))},
        score=_left_out_scores,
        split=({"theta": P("item"), "row": P("item")}, P()),
        items=len(theta),
    )


def _left_out_scores(params, features):
    scores = jnp.matmul(features["query"], params["theta"].T, precision=Precision.HIGHEST)
    own = jnp.einsum("bld,bd->bl", features["own"], features["query"], precision=Precision.HIGHEST)
    right = params["row"][None, :, None] == features["labels"][:, None, :]  # [B, I, L]
    best = jnp.where(right, own[:, None], -jnp.inf).max(axis=2)
    return jnp.where(right.any(axis=2), best, scores)


def tool2vec_stage(task: Task, leave_out: bool) -> FirstStage:
    """Make a first stage that ranks by the Tool2Vec of a training task.

    Args:
      task: the training queries, their tools and the documents.
      leave_out: whether each training query is left out of the means of its tools when the first
        stage ranks for that query.
    """

    def rank(part: Task, k: int) -> Ranking:
        if part is task and leave_out:
            retriever = left_out(task.queries, task.labels, task.theta)
            queries = np.arange(len(task))[:, None]
        else:
            retriever, queries = inner_product("tool2vec", embeddings(task)), part.queries
        k = min(k, retriever.items)
        return search(retriever, queries, k, progress=False)

    return FirstStage(rank, "tool2vec")
