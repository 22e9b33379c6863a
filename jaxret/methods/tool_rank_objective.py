"""What Tool-Rank is trained on: pairs of query and tool, and whether the tool is right.

Letters: M rows of pairs, m negatives of each, B examples a batch.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.encoders.padding import COARSE, pad
from jaxret.training import losses, word_dropout
from jaxret.training.batches import shuffled
from jaxret.training.objectives import Objective, Tokens


def verdicts(
    answer: Callable[..., Float[Array, "B 2"]],
    heads: Tokens,
    tails: Tokens,
    pairs: Int[np.ndarray, "M 2+m"],
    *,
    drop_words: float = 0.0,
    size: int = 16,
    seed: int = 0,
) -> Objective:
    """Makes the objective: the answer's cross-entropy, true for the right tool, false for others.

    The paper's code trains on the answer as a word among all words. Ours is the softmax over the
    two answers alone, which is the score that ranks; the other words never come up.

    Args:
      answer: ``(params, ids, mask, key=) -> logits`` of true and of false.
      heads: tokens up to the document, of each query (`jaxret.methods.tool_rank_prompt`).
      tails: tokens from the document on, of each tool.
      pairs: query, right tool, wrong tools with -1 for none: from `jaxret.training.pairs`. Each
        row is up to 1 + m examples.
      drop_words: the largest share of a query's words that is left out, anew each time
        (`jaxret.training.word_dropout`). Ours.
      size: examples a batch.
      seed: of the order.
    """
    word_dropout.check(drop_words)
    kept = word_dropout.frame(heads)
    rows, places = np.nonzero(pairs[:, 1:] >= 0)
    query, tool = pairs[rows, 0], pairs[rows, 1 + places]
    which = places.clip(max=1).astype(np.int32)[:, None]  # 0 is true, 1 is false

    def both(i: int) -> Sequence[int]:
        return [*heads[query[i]], *tails[tool[i]]]

    def collate(examples):
        ids, mask = pad([both(i) for i in examples], COARSE)
        words = word_dropout.droppable([len(heads[query[i]]) for i in examples], kept, ids.shape[1])
        return {"ids": ids, "mask": mask, "words": words, "answer": which[examples]}

    def loss(params, batch, key):
        mask = batch["mask"]
        if drop_words:
            key, draws = jax.random.split(key)
            mask = word_dropout.drop(draws, mask, batch["words"], drop_words)
        logits = answer(params, batch["ids"], mask, key=key)
        right = logits.argmax(axis=1) == batch["answer"][:, 0]
        return losses.softmax_ce(logits, batch["answer"]), {"accuracy": jnp.mean(right)}

    lengths = [len(heads[q]) + len(tails[t]) for q, t in zip(query, tool, strict=True)]
    return Objective(loss, shuffled(lengths, collate, size=size, seed=seed))
