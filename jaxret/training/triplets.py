"""Triplets (anchor, positive, negative) for the encoders of Tool2Vec, found on the host.

    query2query    queries that share a tool attract, similar ones that do not repel
    query2desc     a query attracts its tools' documents and repels random ones

The paper only says 'triplet loss' (Tool2Vec, Section 5.1.1): the rules are those of its code.
Both give positions, [M, 3], ordered by anchor and the same for the same seed; shuffling is the
task of `jaxret.training.batches`.

Letters: N queries, L labels a query (padded with -1), M triplets.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxret.runtime.validate import require, require_labels

_CHUNK = 512  # anchors whose similarities to all queries are in memory at once


class Triplets(NamedTuple):
    """What was mined, and how many anchors gave nothing for want of a positive or a negative."""

    positions: Int[np.ndarray, "M 3"]  # anchor, positive, negative
    without_positive: int
    without_negative: int


def query2query(
    queries: Float[np.ndarray, "N d"],
    labels: Int[np.ndarray, "N L"],
    texts: Sequence[str],
    *,
    window: int = 100,
    per_side: int = 5,
    limit: int | None = None,
    allow_self: bool = False,
    seed: int = 0,
) -> Triplets:
    """Mines the neighbourhood of each query, as the encoder before training sees it.

    Of the ``window`` most similar queries, from the nearest on, the first ``per_side`` that share
    a tool with the anchor are its positives and the first ``per_side`` that share none its
    negatives; each positive meets each negative.

    The reference keeps the anchor in its own window, where it is its nearest positive, and where
    a data set holds a query once for each of its tools, copies fill the positives. We leave the
    anchor's text out of the window, which also keeps copies with other tools from being negatives
    that no encoder can tell apart.

    Args:
      queries: unit vectors.
      labels: the tools of each query.
      texts: what the vectors encode: equal texts are one query.
      window: 100 for ToolBank and 20 for ToolBench in the reference.
      per_side: positives, and negatives, an anchor.
      limit: at most so many triplets an anchor, drawn at random; None takes all.
      allow_self: leaves the anchor and its copies in the window, as the reference does.
      seed: decides the draw; without ``limit`` nothing is random.
    """
    for name, value in {"window": window, "per_side": per_side, "limit": limit}.items():
        require(name, value, ">= 1", lambda x: x is None or x >= 1)
    if not len(queries) == len(labels) == len(texts):
        sizes = len(queries), len(labels), len(texts)
        raise ValueError(f"queries, labels and texts must be of one length, got {sizes}")
    rng = np.random.default_rng(seed)
    first_seen: dict[str, int] = {}
    same_text = np.array([first_seen.setdefault(text, i) for i, text in enumerate(texts)])
    found, without_positive, without_negative = [np.empty((0, 3), np.int64)], 0, 0
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
        found.append(_cross(anchors, positive, negative, limit, rng))
        without_positive += int((positive < 0).all(axis=1).sum())
        without_negative += int((negative < 0).all(axis=1).sum())
    return Triplets(np.concatenate(found), without_positive, without_negative)


def query2desc(
    labels: Int[np.ndarray, "N L"], items: int, *, negatives: int = 5, seed: int = 0
) -> Int[np.ndarray, "M 3"]:
    """Pairs each of a query's tools with tools drawn from those that are not its own.

    Args:
      labels: the tools of each query.
      items: tools in the catalogue.
      negatives: different tools drawn a query, or all where there are fewer; each of the query's
        tools meets each of them.
      seed: decides the draw.

    Returns:
      lines [M, 3] of (query, right tool, wrong tool), in the order of queries and their labels.

    Raises:
      ValueError: naming the first query whose labels are no labels of this catalogue.
    """
    require("negatives", negatives, ">= 1", lambda x: x >= 1)
    require_labels(labels, items)
    rng = np.random.default_rng(seed)
    found = [np.empty((0, 3), np.int64)]
    for query, row in enumerate(labels):
        right = row[row >= 0]
        others = np.delete(np.arange(items), right)
        wrong = rng.choice(others, min(negatives, len(others)), replace=False)
        found.append(np.stack(np.broadcast_arrays(query, right[:, None], wrong), -1).reshape(-1, 3))
    return np.concatenate(found)


def _nearest(similar: Float[np.ndarray, "C N"], window: int) -> Int[np.ndarray, "C window"]:
    """The most similar columns of each row, best first, equal ones by position."""
    near = np.sort(np.argpartition(similar, -window, axis=1)[:, -window:], axis=1)
    order = np.argsort(-np.take_along_axis(similar, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def _share(
    own: Int[np.ndarray, "C L"], theirs: Int[np.ndarray, "C window L"]
) -> Bool[np.ndarray, "C window"]:
    """Whether each neighbour has a label of the row."""
    shares = np.zeros(theirs.shape[:2], bool)
    for label in own.T:
        shares |= ((theirs == label[:, None, None]) & (theirs >= 0)).any(axis=2)
    return shares


def _first(
    near: Int[np.ndarray, "C window"], wanted: Bool[np.ndarray, "C window"], count: int
) -> Int[np.ndarray, "C count"]:
    """The first ``count`` wanted neighbours of each row, -1 where there are fewer."""
    order = np.argsort(~wanted, axis=1, kind="stable")[:, :count]
    first, there = (np.take_along_axis(x, order, axis=1) for x in (near, wanted))
    return np.where(there, first, -1)


def _cross(anchors, positive, negative, limit, rng):
    """Every anchor with every pair of its positives and negatives, or ``limit`` of these."""
    triplets = np.stack(
        np.broadcast_arrays(anchors[:, None, None], positive[:, :, None], negative[:, None, :]), -1
    ).reshape(len(anchors), -1, 3)
    keep = (triplets >= 0).all(axis=2)
    if limit is not None:
        lots = np.where(keep, rng.random(keep.shape), 1)  # draws lie below 1
        keep &= lots.argsort(axis=1).argsort(axis=1) < limit
    return triplets[keep]
