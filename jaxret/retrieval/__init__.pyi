from . import (
    bm25 as bm25,
    dense as dense,
    rankgpt as rankgpt,
)
from .ranking import (
    Ranking as Ranking,
    in_trec_order as in_trec_order,
)
from .retriever import (
    Reranker as Reranker,
    Retriever as Retriever,
    refine as refine,
    search as search,
)
from .runs import (
    load_run as load_run,
    save_run as save_run,
)
