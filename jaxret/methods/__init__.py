"""Methods that are trained on, or computed from, labelled queries; one module each.

    from jaxret import methods
    retriever = methods.mlc.fit(train, methods.mlc.Config(epochs=3), validation=validation)
    methods.save(retriever, "best_mlc")
    retriever = methods.load("best_mlc", task.encoder)

A module has a frozen ``Config`` and ``fit(task, config, validation=..)``. With ``folder=`` trained
parameters are kept there and found again.

    tool2vec         means of training queries                                       a retriever
    nudge            documents moved towards training queries, closed form           a retriever
    encoder_tuning   an encoder tuned by query2query, query2desc, dpr or tool_embed  a retriever
    mlc              multi-label classification, one output per tool                 a retriever
    refiner          ToolRefiner: all candidates of a query in one pass              a reranker
    cross_encoder    each candidate read together with the query                     a reranker
    tool_rank        each candidate judged by a language model                       a reranker
    refit            queries corrected by a reranker's scores, and a second search
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
