"""What the models are trained on: batches and loss of each recipe.

    classification   MLC: query tokens -> the tools
    refinement       ToolRefiner: query tokens and candidate tools -> which of them are right
    judgement        a cross-encoder: query and document, pair by pair -> the right one of a few

Encoders have theirs in `jaxret.training.contrasts`. A recipe is the pair that
`jaxret.training.loop` wants: ``loss(params, batch, key)`` and `Batches`.

Letters: n examples, B a batch, L tokens or labels, N candidates, d width of the tools' vectors.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.encoders.padding import COARSE, pad
from jaxret.nn.functional import Module
from jaxret.training import losses
from jaxret.training.batches import Batches, shuffled
from jaxret.training.loop import Loss
from jaxret.types import Params

Tokens = Sequence[Sequence[int]]


class Recipe(NamedTuple):
    """What to fit, on what."""

    loss: Loss
    batches: Batches
    frozen: Params | None = None  # see `jaxret.training.loop.fit`


def classification(
    network: Module,
    tokens: Tokens,
    labels: Int[np.ndarray, "n L"],
    *,
    objective: Callable[[Array, Array], Float[Array, ""]] = losses.softmax_ce,
    size: int = 32,
    seed: int = 0,
) -> Recipe:
    """MLC (Tool2Vec, Section 4.2).

    The paper speaks of a binary decision a tool; its code minimises the softmax cross-entropy of
    all right tools, which is the default here too (`losses.multi_label_bce` is the other).
    """

    def collate(rows):
        ids, mask = pad([tokens[row] for row in rows], COARSE)
        return {"ids": ids, "mask": mask, "labels": labels[rows]}

    def loss(params, batch, key):
        logits = network.apply(params, batch["ids"], batch["mask"], key=key)
        return objective(logits, batch["labels"]), {}

    return Recipe(loss, shuffled([len(text) for text in tokens], collate, size=size, seed=seed))


def refinement(
    network: Module,
    tokens: Tokens,
    labels: Int[np.ndarray, "n L"],
    candidates: Int[np.ndarray, "n N"],
    tools: Float[np.ndarray, "I d"],
    *,
    own: Callable[[Int[np.ndarray, " B"]], Float[np.ndarray, "B L d"]] | None = None,
    prior: Float[np.ndarray, "n N"] | None = None,
    inject_missing: bool = False,
    size: int = 32,
    seed: int = 0,
) -> Recipe:
    """ToolRefiner (Tool2Vec, Section 4.3): binary cross-entropy at every candidate.

    What the reference does with right tools that the first stage missed is not published. Here
    candidates stay as they were retrieved, as at test time.

    Args:
      network: from `jaxret.nn.refiner.refiner`.
      tokens: the queries.
      labels: their tools, -1 pads.
      candidates: items of the first stage, best first, -1 pads.
      tools: the vectors of all tools.
      own: positions of queries -> the vectors of their own tools, shown in the place of those in
        ``tools``: `jaxret.retrieval.tool2vec.own_left_out` where these are made of the queries.
      prior: added to the logits, so that the network learns what the first stage does not know:
        its weighted scores, as `jaxret.retrieval.retriever.Reranker.prior` will add them, but for
        their mean, which changes no ranking and which the read-out's bias need not unlearn. Ours.
      inject_missing: puts right tools that were missed in the place of the last candidates.
      size: queries a batch.
      seed: of the order.

    Raises:
      ValueError: if tools are injected, which have no prior, and there is one.
    """
    if prior is not None and inject_missing:
        raise ValueError("inject_missing: a tool that the first stage missed has no prior score")
    given = np.zeros(candidates.shape, np.float32)
    if prior is not None:
        there = candidates >= 0
        given[there] = prior[there] - prior[there].mean()
    shown = _with_missing(candidates, labels) if inject_missing else candidates

    def collate(rows):
        ids, mask = pad([tokens[row] for row in rows], COARSE)
        some, right = shown[rows], labels[rows]
        vectors = tools[np.maximum(some, 0)]
        if own is not None:
            mine = (some[:, :, None] == right[:, None, :]) & (right >= 0)[:, None, :]
            query, place, label = np.nonzero(mine)
            vectors[query, place] = own(rows)[query, label]
        return {
            "ids": ids,
            "mask": mask,
            "labels": right,
            "candidates": some,
            "prior": given[rows],
            "tools": vectors,
        }

    def loss(params, batch, key):
        there = batch["candidates"] >= 0
        logits = network.apply(params, batch["ids"], batch["mask"], batch["tools"], there, key=key)
        logits += batch["prior"]
        return losses.multi_label_bce(logits, batch["labels"], batch["candidates"]), {}

    return Recipe(loss, shuffled([len(text) for text in tokens], collate, size=size, seed=seed))


def judgement(
    score: Callable[..., Float[Array, "B N"]],
    tokens: Tokens,
    labels: Int[np.ndarray, "n L"],
    candidates: Int[np.ndarray, "n N"],
    *,
    size: int = 8,
    seed: int = 0,
) -> Recipe:
    """A cross-encoder learns to pick: softmax over a few tools, one of them right.

        - log softmax(s)_right        s the scores of one right tool and of wrong candidates

    as cross-encoders for passages are commonly fine-tuned. A query with several right tools is one
    example for each; the others are none of its wrong ones.

    Args:
      score: ``(params, features, candidates, key=) -> scores``, features being ``ids`` and
        ``mask``.
      tokens: the queries.
      labels: their tools, -1 pads.
      candidates: items of a first stage, best first, -1 pads; the right ones among them are taken
        out.
      size: examples a batch: size x N pairs.
      seed: of the order.
    """
    rows, which = np.nonzero(labels >= 0)
    wrong = [
        [item for item in some if item >= 0 and item not in right]
        for some, right in zip(candidates, labels, strict=True)
    ]
    shown = np.full((len(rows), candidates.shape[1]), -1, np.int32)
    for example, (row, place) in enumerate(zip(rows, which, strict=True)):
        items = [labels[row, place], *wrong[row]][: candidates.shape[1]]
        shown[example, : len(items)] = items

    def collate(examples):
        ids, mask = pad([tokens[row] for row in rows[examples]], COARSE)
        return {"ids": ids, "mask": mask, "candidates": shown[examples]}

    def loss(params, batch, key):
        features = {"ids": batch["ids"], "mask": batch["mask"]}
        scores = score(params, features, batch["candidates"], key=key)
        scores = jnp.where(batch["candidates"] >= 0, scores, -jnp.inf)
        first = jnp.zeros((len(scores), 1), jnp.int32)  # where the right one stands
        return losses.softmax_ce(scores, first), {}

    lengths = [len(tokens[row]) for row in rows]
    return Recipe(loss, shuffled(lengths, collate, size=size, seed=seed))


def _with_missing(
    candidates: Int[np.ndarray, "n N"], labels: Int[np.ndarray, "n L"]
) -> Int[np.ndarray, "n N"]:
    """Candidates in which every right tool is found; the last ones that are wrong make room."""
    result = candidates.copy()
    for row, right in zip(result, labels, strict=True):
        right = right[right >= 0]  # a place without a candidate is wrong too
        missing = [label for label in right if label not in row]
        wrong = [place for place in reversed(range(len(row))) if row[place] not in right]
        row[wrong[: len(missing)]] = missing[: len(wrong)]
    return result
