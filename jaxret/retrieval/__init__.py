"""Rankings of a catalogue: retrievers score all of it, rerankers a few candidates."""

from typing import TYPE_CHECKING

from jaxret.lazy import lazy

if TYPE_CHECKING:
    from jaxret.retrieval import bm25, dense, multihop, rankgpt
    from jaxret.retrieval.align import procrustes
    from jaxret.retrieval.ranking import Ranking, in_trec_order
    from jaxret.retrieval.retriever import Reranker, Retriever, refine, search
    from jaxret.retrieval.runs import load_run, save_run
    from jaxret.retrieval.testing import check_retriever

__all__ = [
    "Ranking",
    "Reranker",
    "Retriever",
    "bm25",
    "check_retriever",
    "dense",
    "in_trec_order",
    "load_run",
    "multihop",
    "procrustes",
    "rankgpt",
    "refine",
    "save_run",
    "search",
]
__getattr__, __dir__ = lazy(
    __name__,
    {
        "align": ("procrustes",),
        "bm25": (),
        "dense": (),
        "multihop": (),
        "rankgpt": (),
        "ranking": ("Ranking", "in_trec_order"),
        "retriever": ("Reranker", "Retriever", "refine", "search"),
        "runs": ("load_run", "save_run"),
        "testing": ("check_retriever",),
    },
)
