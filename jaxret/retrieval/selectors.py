"""Selectors: rerankers and language models that choose one of the items shown.

Letters: N queries, I items, S runs, k items shown.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.llm import Chat, Prompt
from jaxret.retrieval import rankgpt
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Reranker, refine
from jaxret.types import Selector

PAIRS = 8  # pairs scored together: two CPU cores are fastest with some 500 to 1,000 tokens


def listwise(reranker: Reranker, texts: Sequence[str]) -> Selector:
    """Make a selector of a reranker whose scores depend on the whole slate, such as ToolRefiner."""

    def select(queries, items):
        first = Ranking(items=items, scores=np.zeros(items.shape, np.float32))
        found = refine(reranker, [texts[query] for query in queries], first, progress=False)
        return (items == found.items[:, :1]).argmax(axis=1)

    return select


def pairwise(reranker: Reranker, texts: Sequence[str], items: int) -> Selector:
    """Make a selector of a reranker that scores each pair separately; each pair is scored once.

    Args:
      reranker: scores the items shown.
      texts: the N queries.
      items: the number of items, I.

    Returns:
      the selector, which keeps a table of scores [N, I].
    """
    features = jax.tree.map(jnp.asarray, reranker.read(texts))
    score = jax.jit(reranker.score)
    known = np.full((len(texts), items), np.nan, np.float32)

    def select(queries, items):
        wanted = np.broadcast_to(queries[:, None], items.shape)
        new = np.isnan(known[wanted, items])
        pairs = np.unique(np.stack([wanted[new], items[new]], axis=1), axis=0)
        for start in range(0, len(pairs), PAIRS):
            some = pairs[start : start + PAIRS]
            rows, tools = np.pad(some, ((0, PAIRS - len(some)), (0, 0)), mode="edge").T
            query = jax.tree.map(lambda x, rows=rows: x[rows], features)
            scores = score(reranker.params, query, tools[:, None])
            known[rows, tools] = np.asarray(scores)[:, 0]
        return known[wanted, items].argmax(axis=1)

    return select


def by_language_model(
    chat: Chat,
    texts: Sequence[str],
    documents: Sequence[str],
    *,
    prompt: Prompt = rankgpt.PROMPT,
) -> Selector:
    """Make a selector of RankGPT: the first of its order, or of the slate without a valid answer.

    Args:
      chat: the language model.
      texts: the N queries.
      documents: the I documents.
      prompt: the text of the questions.
    """

    def select(queries, items):
        questions = [
            rankgpt.question(texts[query], [documents[i] for i in slate], prompt=prompt)
            for query, slate in zip(queries, items, strict=True)
        ]
        parse = partial(rankgpt.read_order, n=items.shape[1])
        orders = chat.ask_all(questions, parse, progress=False)
        return np.array([0 if order is None else order.positions[0] for order in orders])

    return select
