"""Right and wrong tools for training queries, chosen on the host before training.

    random_negatives   pairs: m tools drawn uniformly from the wrong ones     Tool-REX's Tool-Embed
    hard_negatives     pairs: the m best wrong tools of a first stage         DPR
    query2query        triplets: queries that share a tool, and near ones that share none
    query2desc         triplets: a query, a right document, a random wrong one

A pair is a row (query, right tool, m wrong tools), one for each label of each query, with -1 where
too few wrong tools are left. A triplet is a row (anchor, positive, negative). Tool2Vec only says
"triplet loss" (Section 5.1.1); the rules for its triplets are those of its code. The rows are
ordered by query; `jaxret.training.batches` shuffles them.

Letters: n queries, d width, L labels per query (padded with -1), I tools, N candidates, m negatives
per pair, M rows, C queries in a chunk.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.runtime.validate import require, require_labels

_CHUNK = 512  # anchors whose similarities to all queries are in memory at once


def random_negatives(
    labels: Int[np.ndarray, "n L"], items: int, *, count: int, seed: int = 0
) -> Int[np.ndarray, "M 2+m"]:
    """Pair each label with wrong tools drawn without replacement.

    Args:
      labels: the tools of each query [n, L].
      items: the number of tools, I.
      count: negatives per pair, m >= 0.
      seed: seed of the draws.

    Returns:
      the pairs [M, 2 + m].

    Raises:
      ValueError: naming the first query with a label outside the catalogue.
    """
    require_labels(labels, items)
    rng = np.random.default_rng(seed)

    def draw(query):
        others = np.delete(np.arange(items), labels[query][labels[query] >= 0])
        return rng.permutation(others)[:count]

    return _pairs(labels, count, draw)


def hard_negatives(
    labels: Int[np.ndarray, "n L"], candidates: Int[np.ndarray, "n N"], *, count: int
) -> Int[np.ndarray, "M 2+m"]:
    """Pair each label with the best wrong tools of a first stage.

    Args:
      labels: the tools of each query [n, L].
      candidates: tools found by the first stage [n, N], best first, padded with -1.
      count: negatives per pair, m >= 0.

    Returns:
      the pairs [M, 2 + m].
    """

    def best(query):
        some = candidates[query]
        return some[(some >= 0) & ~np.isin(some, labels[query])][:count]

    return _pairs(labels, count, best)


def _pairs(labels, count, wrong: Callable[[int], np.ndarray]):
    require("count", count, ">= 0", lambda m: m >= 0)
    queries, columns = np.nonzero(labels >= 0)
    pairs = np.full((len(queries), 2 + count), -1, np.int64)
    pairs[:, 0], pairs[:, 1] = queries, labels[queries, columns]
    for pair, query in zip(pairs, queries, strict=True):
        items = wrong(query)
        pair[2 : 2 + len(items)] = items
    return pairs


class Triplets(NamedTuple):
    """The triplets of `query2query`, and how many anchors lack a positive or a negative."""

    positions: Int[np.ndarray, "M 3"]  # anchor, positive, negative
    without_positive: int
    without_negative: int


def query2query(
    queries: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, "n L"],
    texts: Sequence[str],
    *,
    window: int = 100,
    per_side: int = 5,
    limit: int | None = None,
    allow_self: bool = False,
    seed: int = 0,
) -> Triplets:
    """Mine triplets among the nearest neighbours of each query.

    Of the ``window`` most similar queries, nearest first, the first ``per_side`` that share a tool
    with the anchor are its positives and the first ``per_side`` that share none its negatives. Each
    positive is paired with each negative.

    The reference keeps the anchor in its own window, where the anchor is its nearest positive. In a
    data set with one line per query and tool, copies of the anchor then fill the positives. We
    leave the anchor's text out of the window, so that a copy with other tools is not a negative
    either.

    Args:
      queries: unit vectors from the encoder before training [n, d].
      labels: the tools of each query [n, L].
      texts: the n texts that the vectors encode; equal texts count as one query.
      window: neighbours considered; the reference has 100 for ToolBank, 20 for ToolBench.
      per_side: positives per anchor, and negatives per anchor.
      limit: the most triplets per anchor, drawn at random; None takes all.
      allow_self: whether the anchor and its copies stay in the window, as in the reference.
      seed: seed of the draw; nothing is random without ``limit``.

    Returns:
      the triplets [M, 3] as positions of queries, and two counts.

    Raises:
      ValueError: for a number below 1, or arguments of different lengths.
    """
    for name, value in {"window": window, "per_side": per_side, "limit": limit}.items():
        require(name, value, ">= 1", lambda x: x is None or x >= 1)
    if not len(queries) == len(labels) == len(texts):
        sizes = len(queries), len(labels), len(texts)
        raise ValueError(f"queries, labels and texts must be of one length, got {sizes}")
    rng = np.random.default_rng(seed)
    first_seen: dict[str, int] = {}
    same_text = np.array([first_seen.setdefault(text, i) for i, text in enumerate(texts)])
    mined, without_positive, without_negative = [np.empty((0, 3), np.int64)], 0, 0
    for start in range(0, len(queries), _CHUNK):
        anchors = np.arange(start, min(start + _CHUNK, len(queries)))
        similar = queries[anchors] @ queries.T
        if not allow_self:
            similar[same_text[anchors][:, None] == same_text] = -np.inf
        near = _nearest(similar, min(window, len(queries)))
        allowed = np.take_along_axis(similar, near, axis=1) > -np.inf
        shares = _share(labels[anchors], labels[near])
        positive = _first(near, allowed & shares, per_side)
        negative = _first(near, allowed & ~shares, per_side)
        mined.append(_cross(anchors, positive, negative, limit, rng))
        without_positive += int((positive < 0).all(axis=1).sum())
        without_negative += int((negative < 0).all(axis=1).sum())
    return Triplets(np.concatenate(mined), without_positive, without_negative)


def query2desc(
    labels: Int[np.ndarray, "n L"], items: int, *, negatives: int = 5, seed: int = 0
) -> Int[np.ndarray, "M 3"]:
    """Pair each tool of a query with each of a few random wrong tools.

    Args:
      labels: the tools of each query [n, L].
      items: the number of tools, I.
      negatives: distinct wrong tools drawn per query, or all if there are fewer.
      seed: seed of the draws.

    Returns:
      the triplets [M, 3]: query, right tool, wrong tool.

    Raises:
      ValueError: naming the first query with a label outside the catalogue.
    """
    require("negatives", negatives, ">= 1", lambda x: x >= 1)
    require_labels(labels, items)
    rng = np.random.default_rng(seed)
    triplets = [np.empty((0, 3), np.int64)]
    for query, row in enumerate(labels):
        right = row[row >= 0]
        others = np.delete(np.arange(items), right)
        wrong = rng.choice(others, min(negatives, len(others)), replace=False)
        pairs = np.broadcast_arrays(query, right[:, None], wrong)
        triplets.append(np.stack(pairs, axis=-1).reshape(-1, 3))
    return np.concatenate(triplets)


def _nearest(similar: Float[np.ndarray, "C n"], window: int) -> Int[np.ndarray, "C window"]:
    """Return the most similar columns of each row, best first, equal ones by position."""
    near = np.sort(np.argpartition(similar, -window, axis=1)[:, -window:], axis=1)
    order = np.argsort(-np.take_along_axis(similar, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def _share(
    own: Int[np.ndarray, "C L"], labels: Int[np.ndarray, "C window L"]
) -> Bool[np.ndarray, "C window"]:
    """Return whether each neighbour has a label of the row."""
    shares = np.zeros(labels.shape[:2], bool)
    for label in own.T:
        shares |= ((labels == label[:, None, None]) & (labels >= 0)).any(axis=2)
    return shares


def _first(
    near: Int[np.ndarray, "C window"], wanted: Bool[np.ndarray, "C window"], count: int
) -> Int[np.ndarray, "C count"]:
    """Return the first ``count`` wanted neighbours of each row, padded with -1."""
    order = np.argsort(~wanted, axis=1, kind="stable")[:, :count]
    first, is_wanted = (np.take_along_axis(x, order, axis=1) for x in (near, wanted))
    return np.where(is_wanted, first, -1)


def _cross(anchors, positive, negative, limit, rng):
    """Combine every anchor with its positives and negatives; keep at most ``limit`` of them."""
    triplets = np.stack(
        np.broadcast_arrays(anchors[:, None, None], positive[:, :, None], negative[:, None, :]), -1
    ).reshape(len(anchors), -1, 3)
    keep = (triplets >= 0).all(axis=2)
    if limit is not None:
        lots = np.where(keep, rng.random(keep.shape), 1)  # draws lie below 1
        keep &= lots.argsort(axis=1).argsort(axis=1) < limit
    return triplets[keep]
