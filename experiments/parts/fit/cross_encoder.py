"""A cross-encoder: the reranker of a recipe with ``model: cross_encoder``, on the first stage it
names."""

import jax

from experiments.parts.bench import Bench
from experiments.parts.fit import store
from experiments.parts.fit.refiner import candidates
from jaxret.nn.backbone import shallow
from jaxret.nn.classifier import classifier
from jaxret.nn.layers import Compute
from jaxret.retrieval import cross_encoder as retrieval
from jaxret.retrieval.retriever import Reranker, refine
from jaxret.training import recipes


def reranker(bench: Bench, name: str, seed: int) -> Reranker:
    """The trained cross-encoder."""
    settings, encoder, train = bench.recipes[name], bench.task.encoder, bench.parts.train
    backbone, weights = encoder.backbone, encoder.params
    if settings["layers"] is not None:
        backbone, weights = shallow(backbone, weights, settings["layers"])
    compute = Compute(dropout=settings["dropout"], dtype=settings["dtype"], remat=settings["remat"])
    network = classifier(backbone, 1, pool=settings["pool"], compute=compute)
    params = {**network.init(jax.random.key(seed)), "backbone": weights}
    untrained = retrieval.cross_encoder(
        network,
        params,
        encoder,
        bench.task.documents,
        query_limit=settings["limit"],
        document_limit=settings["document_limit"],
        name=name,
    )
    table, scores = untrained.params[1], retrieval.scorer(network)

    def score(params, features, some, key=None):
        return scores((params, table), features, some, key)

    def recipe():
        return recipes.judgement(
            score,
            encoder.tokens(bench.texts(train), kind="query", limit=settings["limit"]),
            bench.trained_on[1],
            candidates(bench, name, seed, "train", train).items,
            size=settings["size"],
            seed=seed,
        )

    def validate(params):
        rows = bench.parts.validation[: settings["validated"]]
        first = candidates(bench, name, seed, "validation", bench.parts.validation)
        first = first._replace(items=first.items[: len(rows)], scores=first.scores[: len(rows)])
        trained = untrained._replace(params=(params, table))
        return bench.means(refine(trained, bench.texts(rows), first, progress=False), rows)

    model = store.fitted(
        bench.cfg,
        bench.run,
        name,
        seed,
        settings={**settings, "under": bench.recipes.get(settings["first"])},
        start=lambda: params,
        recipe=recipe,
        validate=validate,
    )
    return untrained._replace(params=(model.params, table))
