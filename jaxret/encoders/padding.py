"""Token numbers of many lengths -> arrays of few shapes, so that few programs are compiled.

Letters: B texts in a batch, L tokens a text.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Int

# Texts are padded to one of these lengths: a shape more is half a second of compiling, a step of
# a quarter costs about a tenth in padding. BERTs end at 512.
LENGTHS = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
LENGTHS += (640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192)
# More, for many texts: half of the padding is gone, which repays the programs.
FINE = (*range(8, 257, 8), *(length for length in LENGTHS if length > 256))
# Fewer, for what is trained: gradients compile for longer.
COARSE = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)


def batches(
    tokens: Sequence[Sequence[int]], batch_tokens: int, lengths: Sequence[int] = LENGTHS
) -> Iterator[tuple[Int[np.ndarray, "b"], Int[np.ndarray, "B L"], Bool[np.ndarray, "B L"]]]:
    """Groups texts of similar length into the few shapes that ``lengths`` allow, longest first.

    Only the very last batch can have fewer than B texts; it is filled up with copies of its last.
    A text that comes alone stays alone: live systems ask for one at a time.

    Args:
      tokens: the token numbers of each text, not padded.
      batch_tokens: at most as many tokens in a batch, padding included, unless one text has more.
      lengths: the numbers of tokens that texts are padded to, ascending.

    Yields:
      the positions of the batch's b <= B texts, the padded token numbers, and the mask.

    Raises:
      ValueError: where a text is longer than the last of ``lengths``.
    """
    order = np.argsort([-len(text) for text in tokens], kind="stable")
    while len(order):
        size = max(1, batch_tokens // padded_length(len(tokens[order[0]]), lengths))
        size = 1 if len(tokens) == 1 else size
        rows, order = order[:size], order[size:]
        full = np.pad(rows, (0, size - len(rows)), mode="edge")
        yield rows, *pad([tokens[row] for row in full], lengths)


def pad(
    tokens: Sequence[Sequence[int]], lengths: Sequence[int] = LENGTHS
) -> tuple[Int[np.ndarray, "B L"], Bool[np.ndarray, "B L"]]:
    """Pads token numbers at the end to one of ``lengths``.

    Returns:
      the numbers [B, L], and the mask [B, L] of those that are no padding.
    """
    length = padded_length(max(map(len, tokens)), lengths)
    ids = np.zeros((len(tokens), length), np.int32)
    mask = np.zeros(ids.shape, bool)
    for row, text in enumerate(tokens):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = True
    return ids, mask


def padded_length(length: int, lengths: Sequence[int] = LENGTHS) -> int:
    """Returns the first of ``lengths`` that a text fits in.

    Args:
      length: tokens of the text.
      lengths: the numbers of tokens that texts are padded to, ascending.

    Raises:
      ValueError: where the text is longer than all of them.
    """
    fits = [one for one in lengths if one >= length]
    if not fits:
        raise ValueError(f"a text has {length} tokens, the limit is {max(lengths)}: cut it")
    return fits[0]
