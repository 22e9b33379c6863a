"""Word dropout: queries lose words each time they are trained on (Iyyer et al. 2015).

A network trained from random weights can memorise a small set of queries by any word of each.
Dropping words forces the network to learn from all of them. Iyyer et al. drop a fixed share. We
draw a share for each query, so that some queries stay nearly whole, as they are in use.

Letters: B queries per batch, L tokens.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array, Bool, Key

from jaxret.runtime.validate import require


def check(most: float) -> None:
    """Raise ValueError unless ``most``, the largest share that is dropped, is in 0 .. 1."""
    require("drop_words", most, "in 0 .. 1", lambda share: 0 <= share <= 1)


def frame(texts: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Count the tokens that all texts begin with and end with.

    These tokens are instructions, templates and closing tokens rather than words of a query, so
    they are never dropped.

    Returns:
      the number of common tokens at the beginning and at the end.
    """
    shortest = min(map(len, texts))
    before = _common(texts, range(shortest))
    return before, _common(texts, range(-1, before - shortest - 1, -1))


def _common(texts, positions) -> int:
    """Count the leading ``positions`` at which all texts have the same token."""
    differ = (i for i, at in enumerate(positions) if len({text[at] for text in texts}) > 1)
    return next(differ, len(positions))


def droppable(lengths: Sequence[int], kept: tuple[int, int], width: int) -> Bool[np.ndarray, "B L"]:
    """Mark the words of queries whose rows are padded at the end.

    Args:
      lengths: tokens of each of the B queries.
      kept: numbers of tokens to keep at the beginning and the end, from `frame`.
      width: the length of a row, L.

    Returns:
      True where a token is a word of its query [B, L].
    """
    before, after = kept
    position = np.arange(width)
    return (position >= before) & (position < np.asarray(lengths)[:, None] - after)


def drop(
    key: Key[Array, ""], mask: Bool[Array, "B L"], words: Bool[Array, "B L"], most: float
) -> Bool[Array, "B L"]:
    """Remove a random share of the words of each row from a mask.

    Qwen3 numbers the remaining tokens without gaps; BERT leaves a gap at each dropped one.

    Args:
      key: key of the draws.
      mask: True where there is a token [B, L].
      words: True where the token may be dropped [B, L], from `droppable`.
      most: the largest share, in 0 .. 1; a row's share is uniform between 0 and ``most``.

    Returns:
      True where a token stays [B, L].
    """
    of_row, of_word = jax.random.split(key)
    share = most * jax.random.uniform(of_row, (len(mask), 1))
    return mask & ~(words & (jax.random.uniform(of_word, mask.shape) < share))
