"""Selectors from a slate: trained rerankers and language models, for several runs at once."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxret.llm import Chat
from jaxret.retrieval import multihop, rankgpt
from jaxret.retrieval.ranking import Ranking
from jaxret.retrieval.retriever import Reranker, refine
from jaxret.types import Selector

PAIRS = 8  # scored together: 2 CPU cores are fastest with some 500 to 1,000 tokens


def listwise(reranker: Reranker, texts: Sequence[str]) -> Selector:
    """The best by a reranker whose scores depend on the whole slate, such as ToolRefiner."""

    def select(queries, items):
        first = Ranking(items=items, scores=np.zeros(items.shape, np.float32))
        found = refine(reranker, [texts[query] for query in queries], first, progress=False)
        return (items == found.items[:, :1]).argmax(axis=1)

    return select


def pairwise(reranker: Reranker, texts: Sequence[str], items: int) -> Selector:
    """The best by a reranker that scores each pair alone: a pair is read once, and remembered."""
    features = jax.tree.map(jnp.asarray, reranker.read(texts))
    score = jax.jit(reranker.score)
    known = np.full((len(texts), items), np.nan, np.float32)

    def learn(queries, tools):
        rows = jax.tree.map(lambda x: x[queries], features)
        known[queries, tools] = np.asarray(score(reranker.params, rows, tools[:, None]))[:, 0]

    def select(queries, items):
        wanted = np.broadcast_to(queries[:, None], items.shape)
        new = np.isnan(known[wanted, items])
        pairs = np.unique(np.stack([wanted[new], items[new]], axis=1), axis=0)
        for start in range(0, len(pairs), PAIRS):
            some = pairs[start : start + PAIRS]
            some = np.pad(some, ((0, PAIRS - len(some)), (0, 0)), mode="edge")
            learn(*some.T)
        return known[wanted, items].argmax(axis=1)

    return select


def by_language_model(
    chat: Chat, texts: Sequence[str], documents: Sequence[str], *, words: int = rankgpt.WORDS
) -> Selector:
    """The first of RankGPT's order; where no valid answer comes, the first of the slate."""

    def select(queries, items):
        questions = [
            rankgpt.question(texts[query], [documents[i] for i in slate], words=words)
            for query, slate in zip(queries, items, strict=True)
        ]
        parse = partial(rankgpt.read_order, n=items.shape[1])
        orders = chat.ask_all(questions, parse, progress=False)
        return np.array([0 if order is None else order.positions[0] for order in orders])

    return select


def by_judge(
    chat: Chat,
    texts: Sequence[str],
    documents: Sequence[str],
    *,
    own_bit: bool = False,
    words: int = multihop.WORDS,
) -> Selector:
    """What a judge finds useful; the first of the slate where that is none or no answer is valid.

    With ``own_bit`` its word is the bit too: 0 in these two cases, otherwise 1.
    """

    def select(queries, items):
        questions = [
            multihop.verdict_question(texts[query], [documents[i] for i in slate], words=words)
            for query, slate in zip(queries, items, strict=True)
        ]
        n = items.shape[1]
        parse, schema = partial(multihop.verdict, n=n), multihop.verdict_schema(n)
        verdicts = chat.ask_all(questions, parse, schema=schema, progress=False)
        found = np.array([-1 if verdict is None else verdict for verdict in verdicts])
        positions = np.maximum(found, 0)
        return (positions, (found >= 0).astype(np.float32)) if own_bit else positions

    return select


def by_fit(
    chat: Chat,
    texts: Sequence[str],
    documents: Sequence[str],
    *,
    own_bit: bool = False,
    words: int = multihop.WORDS,
) -> Selector:
    """What a judge that sees one document at a time most probably finds useful.

    A pair is asked once, for one token; without a valid answer it counts as no. With ``own_bit``
    the judge's word on what it picks is the bit too: whether yes is more probable than no.
    """
    known = np.full((len(texts), len(documents)), np.nan, np.float32)
    yes, no = multihop.FIT_WORDS

    def select(queries, items):
        wanted = np.broadcast_to(queries[:, None], items.shape)
        new = np.isnan(known[wanted, items])
        pairs = np.unique(np.stack([wanted[new], items[new]], axis=1), axis=0)
        asked = [multihop.fit_question(texts[n], documents[i], words=words) for n, i in pairs]
        weights = chat.weigh_all(asked, multihop.FIT_WORDS, progress=False)
        for (n, i), found in zip(pairs, weights, strict=True):
            known[n, i] = 0.0 if found is None else found[yes] / (found[yes] + found[no])
        shown = known[wanted, items]
        best = shown.argmax(axis=1)
        bits = (shown.max(axis=1) > 0.5).astype(np.float32)
        return (best, bits) if own_bit else best

    return select
