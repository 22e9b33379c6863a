"""Which queries say nearly what a query of another part says: by the words that they share.

A held-out query that is near one that was streamed is half a repetition, so the two kinds are
reported apart. Of a hop or a sub-task, which is quoted with its whole task, the sub-task's own
words count, the number of its step among them. So counted, 27.5 % of UltraTool's held-out
sub-tasks in `experiments.orag` (seed=0) are near a training one, and 28.7 % of the test part that
`jaxret.data.split.own_split` cuts.
"""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

NEAR = 0.8  # share of words from which two queries are near
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
    words = [own_words(text) for text in (*texts, *others)]
    column = {word: i for i, word in enumerate(sorted(frozenset().union(*words)))}
    holds = np.zeros((len(words), len(column)), np.float32)
    for row, each in enumerate(words):
        holds[row, [column[word] for word in each]] = 1.0
    mine, theirs = holds[: len(texts)], holds[len(texts) :]
    both = mine @ theirs.T
    either = mine.sum(axis=1)[:, None] + theirs.sum(axis=1)[None] - both
    shares = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return shares.max(axis=1, initial=0.0)


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
