"""Which queries say nearly what a query of another part says: by the words that they share.

A held-out query that is near one that was streamed is half a repetition, so the two kinds are
reported apart. Of a hop or a sub-task, which is quoted with its whole task, the sub-task's own
words count, the number of its step among them. So counted, 27.5 % of UltraTool's held-out
sub-tasks in `experiments.orag` (seed=0) are near a training one, and 28.7 % of the test part that
`jaxret.data.split.own_split` cuts.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

NEAR = 0.8  # share of words from which two queries are near
BLOCK = 512  # queries that are compared with all others at a time
_SUB_TASK = re.compile(r'(?:substep:"(.*)"\.|\| Focus: (.*))$', re.DOTALL)  # UltraTool; hops


def own_words(text: str) -> frozenset[str]:
    """The words of a query in lower case; of a sub-task, without those of its whole task."""
    if sub_task := _SUB_TASK.search(text):
        text = sub_task[1] or sub_task[2] or ""
    return frozenset(re.findall(r"\w+", text.lower()))


def shared_words(texts: Sequence[str], others: Sequence[str]) -> Float[np.ndarray, " N"]:
    """Measures for each text how much of its words the most similar other text has too.

    The measure is Jaccard's: words in both over words in either.

    Args:
      texts: N queries.
      others: queries that they are compared with, one at a time.

    Returns:
      [N], in [0, 1]; 0 where there are no others.
    """
    found = np.zeros(len(texts), np.float32)
    for rows, shares in _shares(texts, others):
        found[rows] = shares.max(axis=1, initial=0.0)
    return found


def near(
    texts: Sequence[str], asked: Bool[np.ndarray, " N"], known: Bool[np.ndarray, " N"]
) -> Bool[np.ndarray, " N"]:
    """Marks the queries of a part that are near a query of another part.

    Args:
      texts: of all N queries.
      asked: the part that is marked.
      known: the part that it is compared with.

    Returns:
      a mask [N], False outside of ``asked``.
    """
    rows = np.flatnonzero(asked)
    shares = shared_words([texts[row] for row in rows], [texts[i] for i in np.flatnonzero(known)])
    marked = np.zeros(len(texts), bool)
    marked[rows[shares >= NEAR]] = True
    return marked


def near_another(texts: Sequence[str]) -> Bool[np.ndarray, " N"]:
    """Marks the queries that are near any other one of the list, as those of the same words are.

    Args:
      texts: N queries.

    Returns:
      a mask [N].
    """
    marked = np.zeros(len(texts), bool)
    for rows, shares in _shares(texts, texts):
        shares[np.arange(len(rows)), rows] = 0.0  # each with itself
        marked[rows] = (shares >= NEAR).any(axis=1)
    return marked


def _shares(
    texts: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[Int[np.ndarray, " n"], Float[np.ndarray, "n M"]]]:
    """Yields positions in ``texts`` and what each of them shares with each of M others."""
    words = [own_words(text) for text in (*texts, *others)]
    column = {word: i for i, word in enumerate(sorted(frozenset().union(*words)))}
    sizes = np.array([len(each) for each in words], np.float32)
    columns = np.array([column[word] for each in words for word in each], np.int32)
    ends = np.append(0, np.cumsum(sizes, dtype=np.int64))
    ones = np.ones(len(columns), np.float32)
    holds = sparse.csr_array((ones, columns, ends), shape=(len(words), len(column)))
    mine, theirs = holds[: len(texts)], holds[len(texts) :].T.tocsr()
    for start in range(0, len(texts), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(texts)))
        both = (mine[rows] @ theirs).toarray()
        either = sizes[rows][:, None] + sizes[len(texts) :] - both
        yield rows, np.divide(both, either, out=np.zeros_like(both), where=either > 0)
