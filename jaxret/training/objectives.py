"""What is fitted, on what; and the two objectives that encoders share.

    contrast    Tool2Vec's encoders: triplets of texts, with a margin
    matching    DPR, Tool-Embed: a query finds its tool's document among others

The objective of one method alone stands with that method, in `jaxret.methods`.

Letters: n queries, B a batch, L labels, M examples, m negatives of each, d width of the vectors.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.encoders.padding import COARSE, pad
from jaxret.training import losses, word_dropout
from jaxret.training.batches import Batches, shuffled
from jaxret.training.loop import Loss
from jaxret.types import Params

Tokens = Sequence[Sequence[int]]


class Objective(NamedTuple):
    """What `jaxret.training.loop` wants: ``loss(params, batch, key)`` and its batches."""

    loss: Loss
    batches: Batches
    frozen: Params | None = None  # see `jaxret.training.loop.fit`


def contrast(
    embed: Callable[..., Float[Array, "B d"]],
    anchors: Tokens,
    others: Tokens,
    triplets: Int[np.ndarray, "n 3"],
    *,
    margin: float = 1.0,
    unit: bool = True,
    size: int = 32,
    seed: int = 0,
) -> Objective:
    """Triplets of texts (Tool2Vec, Section 5.1.1; its code's query2query and query2desc).

    Args:
      embed: ``(params, ids, mask, key=) -> vectors``, not normalised.
      anchors: texts that the first column of ``triplets`` points into.
      others: texts that the positives and negatives point into.
      triplets: from `jaxret.training.triplets`.
      margin: of the distances.
      unit: compares unit vectors, as retrieval will; the reference compares raw ones.
      size: triplets a batch: 3 times as many texts.
      seed: of the order.
    """

    def by_role(x):  # [3 B, L] -> [B, 3, L]
        return x.reshape(3, -1, x.shape[-1]).swapaxes(0, 1)

    def collate(rows):
        anchor, positive, negative = triplets[rows].T
        texts = [anchors[i] for i in anchor]
        texts += [others[i] for i in positive] + [others[i] for i in negative]
        ids, mask = pad(texts, COARSE)
        return {"ids": by_role(ids), "mask": by_role(mask)}

    def loss(params, batch, key):
        def flat(x):  # [B, 3, L] -> [3 B, L]
            return x.swapaxes(0, 1).reshape(-1, x.shape[-1])

        vectors = embed(params, flat(batch["ids"]), flat(batch["mask"]), key=key)
        anchor, positive, negative = jnp.split(vectors, 3)
        return losses.triplet_margin(anchor, positive, negative, margin=margin, unit=unit), {}

    longest = np.array([len(text) for text in others])[triplets[:, 1:]].max(axis=1)
    return Objective(loss, shuffled(longest, collate, size=size, seed=seed))


def matching(
    embed: Callable[..., Float[Array, "B d"]],
    queries: Tokens,
    documents: Tokens,
    labels: Int[np.ndarray, "n L"],
    pairs: Int[np.ndarray, "M 2+m"],
    *,
    temperature: float = 0.05,
    in_batch: bool = True,
    mask_false: bool = True,
    drop_words: float = 0.0,
    size: int = 32,
    seed: int = 0,
) -> Objective:
    """InfoNCE on unit vectors (Karpukhin et al. 2020; Tool-REX's Tool-Embed).

    Args:
      embed: ``(params, ids, mask, key=) -> vectors``, not normalised.
      queries: texts that the first column of ``pairs`` points into.
      documents: of the tools, into which the other columns point; -1 is none.
      labels: all tools of each query.
      pairs: from `jaxret.training.pairs`.
      temperature: of the cosines.
      in_batch: whether rows serve each other as negatives.
      mask_false: whether documents of a query's other tools are left out of its negatives; the
        references keep them, so that a query pushes right tools away.
      drop_words: the largest share of a query's words that is left out, anew each time
        (`jaxret.training.word_dropout`). Ours.
      size: pairs a batch: (2 + m) times as many texts.
      seed: of the order.
    """
    word_dropout.check(drop_words)
    width, kept = pairs.shape[1], word_dropout.frame(queries)

    def collate(rows):
        query, shown = pairs[rows, 0], pairs[rows, 1:]
        texts = [queries[i] for i in query]
        texts += [documents[i] for i in np.maximum(shown, 0).T.ravel()]
        ids, mask = (x.reshape(width, len(rows), -1).swapaxes(0, 1) for x in pad(texts, COARSE))
        right = labels[query] if mask_false else shown[:, :1]
        words = word_dropout.droppable([len(queries[i]) for i in query], kept, ids.shape[-1])
        return {"ids": ids, "mask": mask, "words": words, "labels": right, "tools": shown}

    def loss(params, batch, key):
        mask = batch["mask"]
        if drop_words:
            key, draws = jax.random.split(key)
            left = word_dropout.drop(draws, mask[:, 0], batch["words"], drop_words)
            mask = jnp.concatenate([left[:, None], mask[:, 1:]], axis=1)
        ids, mask = (x.reshape(-1, x.shape[-1]) for x in (batch["ids"], mask))
        vectors = embed(params, ids, mask, key=key)
        vectors = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors.reshape(-1, width, vectors.shape[1])
        value = losses.info_nce(
            vectors[:, 0],
            vectors[:, 1],
            batch["labels"],
            batch["tools"][:, 0],
            vectors[:, 2:],
            batch["tools"][:, 1:],
            temperature=temperature,
            in_batch=in_batch,
        )
        return value, {}

    longest = [
        max(len(queries[row[0]]), *(len(documents[i]) for i in row[1:] if i >= 0)) for row in pairs
    ]
    return Objective(loss, shuffled(longest, collate, size=size, seed=seed))
