"""MLC: the classifier of a recipe with ``model: mlc``."""

import jax
import jax.numpy as jnp

from experiments.parts.bench import Bench
from experiments.parts.fit import store
from jaxret.encoders.padding import pad
from jaxret.nn.classifier import classifier
from jaxret.nn.layers import Compute, mean_pool
from jaxret.retrieval import mlc
from jaxret.retrieval.retriever import Retriever
from jaxret.training import losses, recipes

OBJECTIVES = {"softmax_ce": losses.softmax_ce, "bce": losses.multi_label_bce}
HEADS = ("random", "tool2vec")


def retriever(bench: Bench, name: str, seed: int) -> Retriever:
    """The trained classifier."""
    settings, encoder = bench.recipes[name], bench.task.encoder
    items, limit = len(bench.task.documents), settings["limit"]
    if settings["objective"] not in OBJECTIVES:
        raise ValueError(
            f"{name}: objective must be one of {list(OBJECTIVES)}, got {settings['objective']!r}"
        )
    if settings["head"] not in HEADS:
        raise ValueError(f"{name}: head must be one of {HEADS}, got {settings['head']!r}")
    network = classifier(
        encoder.backbone,
        items,
        pool=settings["pool"],
        compute=Compute(
            dropout=settings["dropout"], dtype=settings["dtype"], remat=settings["remat"]
        ),
    )

    def start():
        key = jax.random.key(seed)
        if settings["head"] == "random":
            return mlc.start(network, encoder, key)
        some = encoder.tokens(bench.texts(bench.parts.train[:256]), kind="query", limit=limit)
        pooled = mean_pool(*_hidden(encoder, *pad(some)))
        length = float(jnp.linalg.norm(pooled, axis=1).mean())
        return mlc.start(network, encoder, key, tools=bench.usage(), length=length)

    def recipe():
        return recipes.classification(
            network,
            encoder.tokens(bench.texts(bench.parts.train), kind="query", limit=limit),
            bench.trained_on[1],
            objective=OBJECTIVES[settings["objective"]],
            size=settings["size"],
            seed=seed,
        )

    untrained = mlc.mlc(network, start(), encoder, items=items, limit=limit, name=name)

    def validate(params):
        rows = bench.parts.validation
        found = bench.search(untrained._replace(params=params), rows, progress=False)
        return bench.means(found, rows)

    model = store.fitted(
        bench.cfg,
        bench.run,
        name,
        seed,
        settings=settings,
        start=lambda: untrained.params,
        recipe=recipe,
        validate=validate,
    )
    return untrained._replace(params=model.params)


def _hidden(encoder, ids, mask):
    return jax.jit(encoder.network.apply)(encoder.params, ids, mask), mask
