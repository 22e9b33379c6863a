"""Ranking metrics as trec_eval computes them: accuracy, recall, nDCG and completeness.

The rank of a label is the number of items that score higher, or equally and are an earlier row of
the catalogue; it is computed by a comparison and a sum, without sorting. `jax.lax.top_k` and every
simulation order ties in the same way. trec_eval orders ties by descending document
id instead (`jaxret.retrieval.ranking.in_trec_order`).

With ``rank`` counted from zero and L labels:

    accuracy         1 if a label has rank 0                               Success@1 of trec_eval
    recall@k         labels with rank < k, divided by L
    ndcg@k           sum over labels with rank < k of 1 / log2(rank + 2),
                     divided by the same sum for ranks 0, 1, .., min(k, L) - 1
    completeness@k   1 if every label has rank < k

Labels are padded with -1. A query without labels, for which no tool is right, has NaN for every
metric and is left out of averages.

`evaluate_scores` scores and ranks a whole catalogue; `evaluate_ranking` takes lists of items, best
first, such as those of a `jaxret.retrieval.ranking.Ranking`.

Letters: I items, d width, N queries, L labels per query, k cut (or length of a list).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime.validate import whole_numbers

CHUNK = 256  # queries scored together; at most CHUNK x I scores are in memory at a time
UNRANKED = np.iinfo(np.int32).max  # rank of a padded or absent label, beyond every cut


def ranks(
    scores: Float[Array, "I"],
    labels: Int[Array, "L"],
    available: Bool[ArrayLike, "I"] | None = None,
) -> Int[Array, "L"]:
    """Rank the labels of one query among the available items, counted from zero.

    A label with a NaN score is ranked last, so that a diverged model gets the worst metrics.

    Args:
      scores: scores of all items [I].
      labels: [L], -1 pads.
      available: mask of the items [I]; None: all are available.

    Returns:
      the rank of each label [L]; `UNRANKED` for padded and absent labels.
    """
    score, row = scores[labels][:, None], jnp.arange(len(scores))
    beats = (score > scores[None]) | ((score == scores[None]) & (labels[:, None] < row[None]))
    available = jnp.ones(scores.shape, bool) if available is None else jnp.asarray(available)
    not_beaten = (available[None] & ~beats).sum(axis=1, dtype=jnp.int32)
    present = (labels >= 0) & available[labels]
    return jnp.where(present, not_beaten - 1, UNRANKED)  # -1 for the label itself


def ranks_in(items: Int[ArrayLike, "*N k"], labels: Int[ArrayLike, "*N L"]) -> Int[Array, "*N L"]:
    """Find the rank of each label in a list of items, counted from zero.

    Args:
      items: lists [N, k], or a single list [k], best first.
      labels: [N, L] or [L], -1 pads.

    Returns:
      ranks [N, L] or [L]; `UNRANKED` for padded labels and labels that the list lacks.
    """
    items, labels = jnp.asarray(items), jnp.asarray(labels)
    same = (labels[..., :, None] == items[..., None, :]) & (labels[..., :, None] >= 0)
    position = jnp.argmax(same, axis=-1).astype(jnp.int32)
    return jnp.where(same.any(axis=-1), position, UNRANKED)


def accuracy(ranks: Int[Array, "*N L"], labels: Int[Array, "*N L"]) -> Float[Array, "*N"]:
    """Compute whether the first-ranked item is a label.

    Returns:
      1 or 0 for each query [N].
    """
    return _defined((ranks == 0).any(axis=-1), labels)


def recall_at_k(
    ranks: Int[Array, "*N L"], labels: Int[Array, "*N L"], k: int
) -> Float[Array, "*N"]:
    """Compute the share of the labels that are among the first k items.

    Args:
      ranks: ranks of the labels [N, L].
      labels: [N, L], -1 pads.
      k: cut.

    Returns:
      the share for each query [N].
    """
    return (ranks < k).sum(axis=-1) / (labels >= 0).sum(axis=-1)


def ndcg_at_k(ranks: Int[Array, "*N L"], labels: Int[Array, "*N L"], k: int) -> Float[Array, "*N"]:
    """Compute the discounted gain of the labels among the first k items, over the ideal gain.

    Gains are 0 or 1. Absent labels count in the ideal gain, as missed labels.

    Args:
      ranks: ranks of the labels [N, L].
      labels: [N, L], -1 pads.
      k: cut.

    Returns:
      nDCG of each query [N], in [0, 1].
    """
    gain = jnp.where(ranks < k, 1.0 / jnp.log2(2.0 + ranks), 0.0).sum(axis=-1)
    discounts = 1.0 / np.log2(2.0 + np.arange(labels.shape[-1]))
    best = jnp.asarray(np.concatenate([[0.0], np.cumsum(discounts)]), gain.dtype)
    return gain / best[jnp.minimum((labels >= 0).sum(axis=-1), k)]


def completeness_at_k(
    ranks: Int[Array, "*N L"], labels: Int[Array, "*N L"], k: int
) -> Float[Array, "*N"]:
    """Compute whether every label is among the first k items.

    Args:
      ranks: ranks of the labels [N, L].
      labels: [N, L], -1 pads.
      k: cut.

    Returns:
      1 or 0 for each query [N].
    """
    return _defined(((ranks < k) | (labels < 0)).all(axis=-1), labels)


def evaluate_scores(
    scores: Callable[[Any], Float[Array, "n I"]],
    queries: Any,
    labels: Int[Array, "N L"],
    *,
    available: Bool[ArrayLike, "I"] | None = None,
    k: int = 10,
) -> dict[str, Float[Array, "N"]]:
    """Compute every metric of every query, ranking all available items by given scores.

    Args:
      scores: function of n queries to the scores of all items [n, I].
      queries: query embeddings [N, d], or a tree of arrays with leading axis N.
      labels: right items of each query [N, L], -1 pads.
      available: mask of the items [I]; None: all are available. An absent label is missed.
      k: cut of the ranking.

    Returns:
      ``accuracy``, ``recall@k``, ``ndcg@k`` and ``completeness@k`` (with the number for k), [N].
    """
    size = labels.shape[0]
    chunk = max(1, min(CHUNK, size))

    def chunked(rows):
        return jnp.pad(rows, ((0, -size % chunk), (0, 0))).reshape(-1, chunk, rows.shape[1])

    def of_chunk(queries_and_labels):
        queries, labels = queries_and_labels
        # One query at a time, so that its I x L comparisons fit in the cache.
        by_query = (scores(queries), labels)
        rank = jax.lax.map(lambda one: ranks(*one, available), by_query)
        return _measured(rank, labels, (k,))

    values = jax.lax.map(of_chunk, jax.tree.map(chunked, (queries, labels)))
    return {name: value.reshape(-1)[:size] for name, value in values.items()}


def evaluate_ranking(
    items: Int[ArrayLike, "N k"], labels: Int[ArrayLike, "N L"], ks: Sequence[int]
) -> dict[str, Float[Array, "N"]]:
    """Compute every metric of every query from lists of items.

    Args:
      items: best first [N, k], -1 pads.
      labels: right items of each query [N, L], -1 pads.
      ks: cuts, each at most the length of the lists.

    Returns:
      ``accuracy``, and ``recall@k``, ``ndcg@k`` and ``completeness@k`` for each of ``ks``, [N].

    Raises:
      ValueError: if the numbers of lists and rows of labels differ, or a cut is below 1 or beyond
        the length of the lists.
    """
    items, labels = whole_numbers("items", items, 2), whole_numbers("labels", labels, 2)
    if len(items) != len(labels):
        raise ValueError(f"there are {len(items)} rankings and labels of {len(labels)} queries")
    if out := [k for k in ks if not 1 <= k <= items.shape[1]]:
        raise ValueError(
            f"cuts {out} do not fit lists of {items.shape[1]} items: retrieve more, or cut earlier"
        )
    return _of_lists(items, labels, tuple(ks))


@partial(jax.jit, static_argnames="ks")
def _of_lists(items, labels, ks):
    return _measured(ranks_in(items, labels), labels, ks)


def _measured(ranks, labels, ks) -> dict[str, Float[Array, "*N"]]:
    values = {"accuracy": accuracy(ranks, labels)}
    for k in ks:
        values[f"recall@{k}"] = recall_at_k(ranks, labels, k)
        values[f"ndcg@{k}"] = ndcg_at_k(ranks, labels, k)
        values[f"completeness@{k}"] = completeness_at_k(ranks, labels, k)
    return values


def _defined(success: Bool[Array, "*N"], labels: Int[Array, "*N L"]) -> Float[Array, "*N"]:
    """Convert a bit to a number, NaN for queries without labels."""
    return jnp.where((labels >= 0).any(axis=-1), success.astype(float), jnp.nan)
