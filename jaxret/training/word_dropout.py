"""Queries that lose words each time they are trained on (word dropout; Iyyer et al. 2015).

A network with random weights and few queries learns them by heart: any of their words would do. If
some are missing each time, it has to learn what each word says. A share that is drawn anew for each
query, where they have a fixed one, is ours: queries come nearly whole too, as they do later.

Letters: n queries, B of them a batch, L tokens.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Bool, Key

from jaxret.runtime.validate import require


def check(most: float) -> None:
    """Refuses a share that is none."""
    require("drop_words", most, "in 0 .. 1", lambda share: 0 <= share <= 1)


def frame(texts: Sequence[Sequence[int]]) -> tuple[int, int]:
    """How many tokens all texts begin with and end with: instructions, templates, closing tokens.

    These are no words of a query. They stay.
    """
    shortest = min(map(len, texts))
    before = _shared(texts, range(shortest))
    return before, _shared(texts, range(-1, before - shortest - 1, -1))


def _shared(texts, places) -> int:
    """Of how many places, from the first on, all texts have the same token."""
    differ = (i for i, place in enumerate(places) if len({text[place] for text in texts}) > 1)
    return next(differ, len(places))


def droppable(lengths: Sequence[int], kept: tuple[int, int], width: int) -> Bool[np.ndarray, "B L"]:
    """Where the words of queries are, which begin their rows.

    Args:
      lengths: tokens of each query.
      kept: of the `frame`.
      width: L.

    Returns:
      True [B, L] where a token is a word of its query.
    """
    before, after = kept
    place = np.arange(width)
    return (place >= before) & (place < np.asarray(lengths)[:, None] - after)


def drop(
    key: Key[Array, ""], mask: Bool[Array, "B L"], words: Bool[Array, "B L"], most: float
) -> Bool[Array, "B L"]:
    """The mask without some of the words: of each row a share between none and ``most``.

    To mask a token is to leave it out. Qwen3 does not count its place either; BERT leaves a gap.

    Args:
      key: of the draws.
      mask: of the tokens.
      words: from `droppable`.
      most: the largest share, in 0 .. 1; the mean is half of it.

    Returns:
      True [B, L] where a token stays.
    """
    of_row, of_word = jax.random.split(key)
    share = most * jax.random.uniform(of_row, (len(mask), 1))
    return mask & ~(words & (jax.random.uniform(of_word, mask.shape) < share))
