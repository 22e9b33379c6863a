"""What a cross-encoder is trained on: one right tool among wrong candidates.

Letters: n queries, B a batch, L labels, N candidates.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.encoders.padding import COARSE, pad
from jaxret.training import losses
from jaxret.training.batches import shuffled
from jaxret.training.objectives import Objective, Tokens


def judgement(
    score: Callable[..., Float[Array, "B N"]],
    tokens: Tokens,
    labels: Int[np.ndarray, "n L"],
    candidates: Int[np.ndarray, "n N"],
    *,
    size: int = 8,
    seed: int = 0,
) -> Objective:
    """Makes the objective: pick the right one of a few tools.

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
    return Objective(loss, shuffled(lengths, collate, size=size, seed=seed))
