"""Finds queries that are nearly the same as another query, by their shared words.

A held-out query near a streamed query is partly a repetition, so `near` divides a held-out part in
two. The text of a hop or sub-task quotes its whole question; only the words of the sub-task count,
including the number of its step. By this measure 27.5 % of UltraTool's held-out sub-tasks in
`experiments.orag` (seed=0) are near a training one, and 28.7 % of the test part of
`jaxret.data.split.own_split`. `NearDuplicates` compares generated queries one by one.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from jaxret.runtime.validate import require

NEAR = 0.8  # similarity from which two queries are near
BLOCK = 512  # queries compared with all others at once
_SUB_TASK = re.compile(r'(?:substep:"(.*)"\.|\| Focus: (.*))$', re.DOTALL)  # UltraTool; hops


def own_words(text: str) -> frozenset[str]:
    """Return the words of a query, or of its sub-task if it has one, in lower case."""
    if sub_task := _SUB_TASK.search(text):
        text = sub_task[1] or sub_task[2] or ""
    return frozenset(re.findall(r"\w+", text.lower()))


def shared_words(texts: Sequence[str], others: Sequence[str]) -> Float[np.ndarray, " N"]:
    """Return the Jaccard similarity of each text with the most similar other text.

    The similarity is the number of words in both texts over the number of words in either.

    Returns:
      Similarities [N] in [0, 1]; 0 if there are no others.
    """
    found = np.zeros(len(texts), np.float32)
    for rows, shares in _shares(texts, others):
        found[rows] = shares.max(axis=1, initial=0.0)
    return found


def near(
    texts: Sequence[str], part: Bool[np.ndarray, "*S N"], other: Bool[np.ndarray, "*S N"]
) -> Bool[np.ndarray, "*S N"]:
    """Mark the queries of one part that are near a query of another part.

    Args:
      texts: all N queries.
      part: mask [N] of the part to mark, or one mask per seed [S, N].
      other: mask of the part to compare with, of the same shape.

    Returns:
      Masks [N] or [S, N], False outside of ``part``.
    """
    if part.ndim > 1:
        return np.stack([near(texts, *pair) for pair in zip(part, other, strict=True)])
    rows = np.flatnonzero(part)
    shares = shared_words([texts[row] for row in rows], [texts[i] for i in np.flatnonzero(other)])
    marked = np.zeros_like(part)
    marked[rows[shares >= NEAR]] = True
    return marked


def near_another(texts: Sequence[str]) -> Bool[np.ndarray, " N"]:
    """Mark the queries that are near another query of the list.

    Returns:
      A mask [N].
    """
    marked = np.zeros(len(texts), bool)
    for rows, shares in _shares(texts, texts):
        shares[np.arange(len(rows)), rows] = 0.0  # ignores each text's similarity with itself
        marked[rows] = (shares >= NEAR).any(axis=1)
    return marked


class NearDuplicates:
    """Accepted texts, and a search for one that is nearly the same as a new text.

    Texts are compared by Jaccard similarity of their sets of pairs of neighbouring words, which
    depends on the order of words and needs no model. An index from pairs to texts limits the
    comparison to texts that share a pair.

    Args:
      threshold: similarity from which two texts are nearly the same, in (0, 1].

    Raises:
      ValueError: if the threshold is out of range.
    """

    def __init__(self, threshold: float):
        require("threshold", threshold, "in (0, 1]", lambda x: 0 < x <= 1)
        self._threshold = threshold
        self._texts: list[str] = []
        self._sizes: list[int] = []
        self._holders: dict[tuple[str, ...], list[int]] = {}  # pair -> positions of texts

    def find(self, text: str) -> str | None:
        """Return the most similar accepted text above the threshold, the earliest of equals."""
        pairs = word_pairs(text)
        shared = Counter(i for pair in pairs for i in self._holders.get(pair, ()))
        similar = [(both / (len(pairs) + self._sizes[i] - both), -i) for i, both in shared.items()]
        best, place = max(similar, default=(0.0, 0))
        return self._texts[-place] if best >= self._threshold else None

    def add(self, text: str) -> None:
        """Accept a text."""
        pairs = word_pairs(text)
        for pair in pairs:
            self._holders.setdefault(pair, []).append(len(self._texts))
        self._texts.append(text)
        self._sizes.append(len(pairs))


def word_pairs(text: str) -> frozenset[tuple[str, ...]]:
    """Return the pairs of neighbouring words of a text, or the word of a text with one word."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(pairwise(words)) or frozenset([tuple(words)])


def _shares(
    texts: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n M"]]]:
    """Yield positions of n texts and their similarities [n, M] with the M others."""
    words = [own_words(text) for text in (*texts, *others)]
    column = {word: i for i, word in enumerate(sorted(frozenset().union(*words)))}
    sizes = np.array([len(each) for each in words], np.float32)
    columns = np.array([column[word] for each in words for word in each], np.int32)
    ends = np.append(0, np.cumsum(sizes, dtype=np.int64))
    ones = np.ones(len(columns), np.float32)
    holds = sparse.csr_array((ones, columns, ends), shape=(len(words), len(column)))
    own, others = holds[: len(texts)], holds[len(texts) :].T.tocsr()
    for start in range(0, len(texts), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(texts)))
        both = (own[rows] @ others).toarray()
        either = sizes[rows][:, None] + sizes[len(texts) :] - both
        yield rows, np.divide(both, either, out=np.zeros_like(both), where=either > 0)
