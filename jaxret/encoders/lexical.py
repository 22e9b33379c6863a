"""The match of a query's words with those of the tools' documents, as a prior.

    lexicon = Lexicon(documents)
    lexicon.prior(["is the 8:40 to Basel late?"])       the best tools of each query, with scores

The score is the cosine of two vectors over words, in [0, 1]:

    document   sqrt(idf_j)  f / (f + k1 (1 - b + b l / mean l))     f: occurrences in the document
    query      sqrt(idf_j)  f                                       f: occurrences in the query

for each word j, with l words in the document, k1 = `K1` and b = `B`. The inner product alone is
BM25 (Robertson and Zaragoza 2009; Lucene's variant, library ``bm25s``), with the factor sqrt(idf)
on each side. BM25 grows with the length of the query, so no single weight suits all queries.

A word is a run of two or more letters, or of two or more digits; letters are in lower case and
without accents. Words are cut to their first `STEM` characters, a crude stemmer. English stop words
are left out. Identifiers are split: ``getTrainDelay`` and ``get_train_delay`` have three words.
Languages that do not separate words by spaces, such as Chinese, Japanese and Thai, match only where
runs of letters begin with the same characters. Words of a query that are in no document are
ignored, also in the length of its vector.

Letters: I tools, N queries, V different words, K scores per query.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from jaxret.rules.offsets import WIDTH
from jaxret.types import Prior

K1, B = 1.2, 0.75
STEM = 5  # letters of a word that are compared
WORD = r"(?u)[^\W\d_]{2,}|\d{2,}"
INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
CELLS = 2**23  # scores in memory at a time, before the best are kept


def bm25s_library() -> ModuleType:
    """Import bm25s on first use.

    Its import starts JAX's backend, after which processes cannot join each other
    (`jaxret.runtime.distributed`), and sets the library's logger to DEBUG.
    """
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s


class Lexicon:
    """The words of a catalogue's documents.

    Args:
      documents: one text per tool; a text without words matches nothing.
    """

    def __init__(self, documents: Sequence[str]):
        self.items = len(documents)
        tokens = words(documents)
        self._vocabulary: dict[str, int] = {}
        self._idf = np.zeros(0)
        self._documents = sparse.csr_matrix((self.items, 0))
        if not any(tokens):
            return
        index = bm25s_library().BM25(method="lucene", k1=K1, b=B)
        index.index(tokens, show_progress=False)
        parts: Any = index.scores
        columns = (parts["data"].astype(np.float64), parts["indices"], parts["indptr"])
        size = (self.items, len(parts["indptr"]) - 1)
        weights = sparse.csc_matrix(columns, shape=size)  # idf times the saturated frequency
        column = {word: i for word, i in index.vocab_dict.items() if i < size[1]}
        order = sorted(column)  # bm25s orders words by their hash, which differs between processes
        weights = weights[:, [column[word] for word in order]]
        found = np.diff(weights.indptr)
        self._idf = np.log1p((self.items - found + 0.5) / (found + 0.5))
        self._vocabulary = {word: i for i, word in enumerate(order)}
        self._documents = _unit_rows(weights @ sparse.diags(1 / np.sqrt(self._idf)))

    def prior(
        self,
        texts: Sequence[str],
        *,
        width: int = WIDTH,
        among: Bool[np.ndarray, " I"] | None = None,
    ) -> Prior:
        """Score the tools for N queries.

        Args:
          texts: the queries.
          width: K, tools with a score per query; all others have 0. At most I are kept.
          among: mask of the tools that may have a score; None: all. The idf of a
            word counts all documents in either case.

        Returns:
          A prior with fields [N, K], best first.
        """
        width, queries = min(width, self.items), self._vectors(texts)
        items = np.full((len(texts), width), -1, np.int32)
        values = np.zeros((len(texts), width), np.float32)
        rows = max(1, CELLS // max(1, self.items))
        for first in range(0, len(texts), rows):
            some = (queries[first : first + rows] @ self._documents.T).toarray()
            some = some if among is None else some * among
            best = _largest(some, width)
            order = np.take_along_axis(some, best, 1)
            best = np.take_along_axis(best, np.lexsort((best, -order), axis=1), 1)
            score = np.take_along_axis(some, best, 1)
            items[first : first + rows] = np.where(score > 0, best, -1)
            values[first : first + rows] = np.minimum(score, 1.0)  # rounding may exceed 1
        return Prior._make((items, values))

    def _vectors(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return the vectors of queries [N, V], of length 1, or 0 without a known word."""
        rows, columns, values = [], [], []
        for row, found in enumerate(words(texts)):
            known = [w for w in found if w in self._vocabulary]
            for word, times in Counter(known).items():
                column = self._vocabulary[word]
                rows.append(row)
                columns.append(column)
                values.append(times * np.sqrt(self._idf[column]))
        size = (len(texts), len(self._idf))
        return _unit_rows(sparse.csr_matrix((values, (rows, columns)), shape=size))


def _largest(scores: Float[np.ndarray, "n I"], k: int) -> Int[np.ndarray, "n k"]:
    """Return the columns of the k largest scores of each row; of equal ones the first.

    Returns:
      [n, k], in the order of the columns.
    """
    least = np.partition(scores, -k, axis=1)[:, -k, None]  # the k-th largest
    above, equal = scores > least, scores == least
    room = k - above.sum(axis=1, keepdims=True)
    kept = above | (equal & (equal.cumsum(axis=1) <= room))
    return np.nonzero(kept)[1].reshape(len(scores), k)


def words(texts: Sequence[str]) -> list[list[str]]:
    """Split texts into the words that are compared."""
    split = [INNER_CAPITAL.sub(" ", _without_marks(text)) for text in texts]

    def cut(found):
        return [word[:STEM] for word in found]

    tokenize: Any = bm25s_library().tokenize  # returns lists of words where return_ids is False
    return tokenize(
        split,
        token_pattern=WORD,
        stopwords="en",
        stemmer=cut,
        return_ids=False,
        show_progress=False,
    )


def _without_marks(text: str) -> str:
    """Leave out accents and vowel signs, which Python's patterns take for the end of a word."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text)
    return "".join(x for x in letters if not unicodedata.category(x).startswith("M"))


def sparse_prior(scores: Float[np.ndarray, "N I"]) -> Prior:
    """Convert the scores of all tools to a prior that holds those that are not 0.

    Returns:
      A prior with fields [N, K], K the largest number of scores of a query.
    """
    width = max(1, int((scores != 0).sum(axis=1).max(initial=0)))
    items = np.argsort(scores == 0, axis=1, kind="stable")[:, :width].astype(np.int32)
    values = np.take_along_axis(scores, items, 1).astype(np.float32)
    return Prior._make((np.where(values != 0, items, -1), values))


def _unit_rows(matrix: sparse.spmatrix) -> sparse.csr_matrix:
    """Scale rows to length 1; rows of zeros stay."""
    rows = sparse.csr_matrix(matrix)
    rows.sort_indices()  # sums in one order
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1)).A1
    return sparse.csr_matrix(sparse.diags(1 / np.where(lengths > 0, lengths, 1.0)) @ rows)
