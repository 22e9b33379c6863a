"""BM25 on words, as Tool-REX evaluates it (library ``bm25s``, Lucene's variant).

    score_i = sum over the words w of the query of
        log(1 + (I - n_w + 0.5) / (n_w + 0.5))  *  f_iw / (f_iw + k1 (1 - b + b l_i / l))

with f_iw occurrences of w in document i, n_w documents that contain w, l_i words in document i and
l the mean of l_i. Words are runs of at least two letters, digits or underscores in lower case,
without the 33 English stop words of Lucene and without stemming; k1 = 1.5, b = 0.75. A word that
occurs twice in the query counts twice.

The sparse index stays on the host; the scores are the retriever's features.

Letters: B queries, I documents.
"""

from collections.abc import Sequence

import numpy as np
from jax.sharding import PartitionSpec as P

from jaxret.encoders.lexical import bm25s_library
from jaxret.retrieval.retriever import Retriever
from jaxret.runtime.validate import require_texts

K1, B = 1.5, 0.75  # those of the paper; `jaxret.encoders.lexical` has its own


def bm25(documents: Sequence[str], *, name: str = "bm25") -> Retriever:
    """Index the tools' documents; a query without a known word scores 0 everywhere.

    Args:
      documents: one text per tool.
      name: shown in the progress bar and in errors.

    Raises:
      ValueError: if no document contains a word.
      TypeError: in a search, if the queries are not strings.
    """
    bm25s = bm25s_library()

    def words(texts):
        return bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)

    tokens = words(documents)
    if not any(tokens):
        raise ValueError(f"none of the {len(documents)} documents holds a word: nothing to index")
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index(tokens, show_progress=False)

    def read(texts):
        require_texts(texts)
        known = [index.get_tokens_ids(text) for text in words(texts)]
        return np.stack([index.get_scores_from_ids(ids) for ids in known])

    return Retriever(
        name=name,
        read=read,
        params=(),
        score=_as_read,
        split=(P(), P(None, "item")),
        items=len(documents),
    )


def _as_read(_, scores):
    return scores
