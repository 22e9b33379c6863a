"""Methods that are trained or computed from labelled queries, one a file.

    from jaxret.methods import mlc
    retriever = mlc.fit(train, mlc.Config(epochs=3), validation=validation, folder="models")
    mlc.save(retriever, "best_mlc")

Each has a frozen ``Config``, ``fit(task, config, validation=..)`` and, where it has parameters,
``save`` and ``load``.

    tool2vec        means of training queries                                        a retriever
    nudge           documents moved towards training queries, closed form            a retriever
    query2query     Tool2Vec, with an encoder tuned for it                           a retriever
    query2desc      documents, with an encoder tuned on them                         a retriever
    dpr             documents, with an encoder tuned by contrast                     a retriever
    tool_embed      likewise, as Tool-REX does it                                    a retriever
    mlc             multi-label classification, an output a tool                     a retriever
    refiner         ToolRefiner: all candidates of a query in one pass               a reranker
    cross_encoder   every candidate read together with the query                     a reranker
    tool_rank       likewise, by a language model's word for true                    a reranker
    refit           queries corrected by what a reranker says, a second search
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
