"""Pads token ids to few lengths, so that few programs are compiled.

Letters: B texts in a batch, L tokens per text.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Int

# Lengths of padded texts. Each further shape takes half a second to compile; steps of a quarter
# cost about a tenth in padding. BERTs end at 512.
LENGTHS = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
LENGTHS += (640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192)
# Finer lengths for many texts, with half of the padding.
FINE = (*range(8, 257, 8), *(length for length in LENGTHS if length > 256))
# Coarser lengths for training, since gradients take longer to compile.
COARSE = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)


def batches(
    tokens: Sequence[Sequence[int]], batch_tokens: int, lengths: Sequence[int] = LENGTHS
) -> Iterator[tuple[Int[np.ndarray, "b"], Int[np.ndarray, "B L"], Bool[np.ndarray, "B L"]]]:
    """Group texts of similar length into the few shapes that ``lengths`` allow, longest first.

    Only the last batch can have fewer than B texts; it is padded with copies of its last text. A
    single text is not padded to a batch, since live systems encode one text at a time.

    Args:
      tokens: token ids of each text, not padded.
      batch_tokens: largest number of tokens in a batch, padding included, unless one text has more.
      lengths: numbers of tokens that texts are padded to, ascending.

    Yields:
      The positions of the batch's b <= B texts, the padded token ids, and the mask.

    Raises:
      ValueError: if a text is longer than the last of ``lengths``.
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
    """Pad token ids at the end to one of ``lengths``.

    Returns:
      The token ids [B, L], and the mask [B, L], False for padding.
    """
    length = padded_length(max(map(len, tokens)), lengths)
    ids = np.zeros((len(tokens), length), np.int32)
    mask = np.zeros(ids.shape, bool)
    for row, text in enumerate(tokens):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = True
    return ids, mask


def padded_length(length: int, lengths: Sequence[int] = LENGTHS) -> int:
    """Return the smallest of ``lengths`` that a text fits in.

    Raises:
      ValueError: if the text is longer than all of them.
    """
    fits = [one for one in lengths if one >= length]
    if not fits:
        raise ValueError(f"a text has {length} tokens, the limit is {max(lengths)}: cut it")
    return fits[0]
