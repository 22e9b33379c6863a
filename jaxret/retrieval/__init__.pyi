from . import (
    bm25 as bm25,
    dense as dense,
    multihop as multihop,
    rankgpt as rankgpt,
)
from .align import procrustes as procrustes
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
from .testing import check_retriever as check_retriever
