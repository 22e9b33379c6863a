"""Tool2Vec: a tool's embedding is the mean of the queries that used it.

    v_i = mean of q over the training queries with label i          (Tool2Vec, Section 4.1, Fig. 4)

The mean of unit vectors is shorter than 1, the more so the more widely a tool is used, and a dot
product then favours tools with narrow use. The paper does not say whether it scales the mean back
to length 1 and its evaluation code does not; we do by default, because on ToolLens that alone
lifts R@5 from 0.446 to 0.688 with frozen MiniLM (`experiments.evaluate_retrieval`).

    retriever = fit(train, Config())
    ranking = search(retriever, texts, k=10)

An encoder tuned for it: `jaxret.methods.query2query`.

Letters: N queries, L labels a query, I tools, d width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.encoders import TextEncoder
from jaxret.methods import files
from jaxret.methods.common import FirstStage
from jaxret.retrieval.dense import dense, inner_product
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Retriever, search
from jaxret.runtime.validate import require
from jaxret.task import Task


@dataclass(frozen=True, kw_only=True)
class Config:
    """How usage becomes a vector.

    Raises:
      ValueError: for a weight outside of [0, 1].
    """

    normalise: bool = True  # scales the means to length 1; False is the reference
    mix: float = 1.0  # weight of usage against the document

    def __post_init__(self):
        require("mix", self.mix, "in [0, 1]", lambda weight: 0 <= weight <= 1)


def fit(
    task: Task, config: Config, *, name: str = "tool2vec", cache: Path | None = None
) -> Retriever:
    """Makes the tools' vectors of a training task.

    Args:
      task: whose queries and labels are the usage.
      config: how.
      name: shown in the progress bar and in errors.
      cache: where vectors of new queries are kept; None keeps nothing.

    Returns:
      a retriever of texts, or of vectors where the task has no encoder.
    """
    retriever = dense(name, embeddings(task, config), task.encoder, cache=cache)
    return retriever._replace(config=config)


def save(retriever: Retriever, folder: str | Path) -> None:
    """Writes what `fit` returned; see `jaxret.methods.files`."""
    files.write(folder, "tool2vec", retriever, {"theta": retriever.params})


def load(
    folder: str | Path, encoder: TextEncoder | None, *, cache: Path | None = None
) -> Retriever:
    """Reads a retriever; without an encoder its queries are vectors."""
    return files.read_dense(folder, "tool2vec", Config, encoder, cache)


def embeddings(task: Task, config: Config = Config()) -> Float[np.ndarray, "I d"]:
    """Tool2Vec of a training task.

    Returns:
      [I, d], on the host.
    """
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
    """Tool embeddings from usage; a tool without usage keeps its document.

    Args:
      queries: unit vectors of the training queries.
      labels: the tools that each used, -1 pads.
      documents: unit vectors of the tools' documents.
      normalise: scales the means, and the mixtures, to length 1; False is the reference.
      mix: weight of usage against the document, in [0, 1].

    Returns:
      rows [I, d]: ``mix v_i + (1 - mix) document_i``, or ``document_i`` where no query used tool i.
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
    """Counts how often each tool was used, and sums the queries that used it.

    Returns:
      the counts [I] and the sums [I, d]; 0 for a tool that no query used.
    """
    rows = jnp.where(labels >= 0, labels, items).reshape(-1)  # pads fall into a row past the end
    ones = jnp.ones(len(rows), queries.dtype)
    each = jnp.repeat(queries, labels.shape[1], axis=0)
    uses = jax.ops.segment_sum(ones, rows, items + 1)[:items]
    return uses, jax.ops.segment_sum(each, rows, items + 1)[:items]


def _unit(rows):
    length = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows / jnp.where(length > 0, length, 1)


def own_left_out(
    queries: Float[ArrayLike, "N d"],
    labels: Int[ArrayLike, "N L"],
    documents: Float[ArrayLike, "I d"],
) -> Callable[[Int[np.ndarray, " B"]], Float[np.ndarray, "B L d"]]:
    """Positions of training queries -> the embeddings of their own tools, made without them.

    A training query is part of the means of its own tools, so these look better to it than they
    will to new queries, and what is trained on them learns to find a query in its own mean: the
    more so the fewer queries a tool has. Ours: the paper does not speak of it.

    Args:
      queries: as `tool2vec` takes them.
      labels: likewise.
      documents: likewise. Means are scaled to length 1.

    Returns:
      a function on the host; where a label is -1 its result means nothing.
    """
    vectors, tools, texts = np.asarray(queries), np.asarray(labels), np.asarray(documents)
    uses, sums = map(np.asarray, usage(jnp.asarray(vectors), jnp.asarray(tools), len(texts)))

    def without(rows):
        own = tools[rows]
        rest = sums[own] - vectors[rows][:, None]
        length = np.linalg.norm(rest, axis=2, keepdims=True)
        alone = (uses[own] < 1.5)[..., None]  # no other query used it
        return np.where(alone, texts[own], rest / np.where(alone | (length == 0), 1, length))

    return without


def left_out(
    queries: Float[ArrayLike, "N d"],
    labels: Int[ArrayLike, "N L"],
    documents: Float[ArrayLike, "I d"],
) -> Retriever:
    """Tool2Vec for its own training queries, each left out of the means of its tools.

    In the place of texts `search` takes positions of training queries here, [M, 1]. Arguments are
    those of `own_left_out`.
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
    mine = params["row"][None, :, None] == features["labels"][:, None, :]  # [B, I, L]
    return jnp.where(mine.any(axis=2), jnp.where(mine, own[:, None], -jnp.inf).max(axis=2), scores)


def tool2vec_stage(task: Task, leave_out: bool) -> FirstStage:
    """Makes Tool2Vec of a training task a first stage.

    Args:
      task: whose usage it is.
      leave_out: whether its own queries are left out of the means of their tools, see
        `own_left_out`.
    """

    def rank(part: Task, k: int) -> Ranking:
        if part is task and leave_out:
            retriever = left_out(task.queries, task.labels, task.theta)
            queries = np.arange(len(task))[:, None]
        else:
            retriever, queries = inner_product("tool2vec", embeddings(task)), part.queries
        k = min(k, retriever.items)
        return search(retriever, queries, k, tie_order=part.tie_order, progress=False)

    return FirstStage(rank, "tool2vec")
