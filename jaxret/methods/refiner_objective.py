"""What ToolRefiner is trained on: queries with their candidates, and which of them are right.

Letters: n queries, B a batch, L labels, N candidates, I tools, d width of their vectors.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from jaxret.encoders.padding import COARSE, pad
from jaxret.nn.functional import Module
from jaxret.training import losses
from jaxret.training.batches import shuffled
from jaxret.training.objectives import Objective, Tokens


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
) -> Objective:
    """Makes the objective: binary cross-entropy at every candidate (Tool2Vec, Section 4.3).

    What the reference does with right tools that the first stage missed is not published. Here
    candidates stay as they were retrieved, as at test time.

    Args:
      network: from `jaxret.nn.refiner.refiner`.
      tokens: the queries.
      labels: their tools, -1 pads.
      candidates: items of the first stage, best first, -1 pads.
      tools: the vectors of all tools.
      own: positions of queries -> the vectors of their own tools, shown in the place of those in
        ``tools``: `jaxret.methods.tool2vec.own_left_out` where these are made of the queries.
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

    return Objective(loss, shuffled([len(text) for text in tokens], collate, size=size, seed=seed))


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
