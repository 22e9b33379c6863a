"""Trained encoders: query2query for Tool2Vec, query2desc, DPR and Tool-Embed for documents.

The paper's Tool2Vec tunes E5-base for one epoch with a triplet loss (Section 5.1.1); the
description-based baseline is tuned alike. DPR has the InfoNCE of documents in the batch and one of
BM25's (Karpukhin et al. 2020; ORAG, Table 3, which gives no settings), Tool-Embed that of tools
drawn at random (Tool-REX, Section 2.5), all of the encoder trained or a LoRA.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from experiments.parts.bench import Bench
from experiments.parts.fit import store
from experiments.parts.fit.trainable import trainable
from jaxret import encoders as encode
from jaxret.nn.layers import Compute
from jaxret.retrieval import dense
from jaxret.retrieval.retriever import Retriever
from jaxret.retrieval.tool2vec import tool2vec
from jaxret.training import contrasts, pairs, triplets

MINES = ("query2query", "query2desc", "dpr", "tool_embed")
USAGE = 2048  # training queries, at most, that make Tool2Vec while validating: encoding is slow


def retriever(bench: Bench, name: str, seed: int) -> Retriever:
    """The trained retriever of a recipe with ``model: encoder``; ``mine`` is one of `MINES`."""
    settings, encoder = bench.recipes[name], bench.task.encoder
    network = encoder.backbone.network(
        Compute(dropout=settings["dropout"], dtype=settings["dtype"], remat=settings["remat"])
    )
    mine = settings["mine"]
    if mine not in MINES:
        raise ValueError(f"{name}: mine must be one of {', '.join(MINES)}, got {mine!r}")
    part = trainable(network, encoder.params, settings.get("lora"), seed)

    def embed(params, ids, mask, key=None):
        return encoder.pool(part.apply(params, ids, mask, key=key), mask)

    def recipe():
        queries = encoder.tokens(
            bench.texts(bench.parts.train), kind="query", limit=settings["limit"]
        )
        others = queries
        if mine != "query2query":
            others = encoder.tokens(bench.task.documents, kind="document", limit=settings["limit"])
        if mine in ("dpr", "tool_embed"):
            return contrasts.matching(
                embed,
                queries,
                others,
                bench.trained_on[1],
                matched(bench, settings, seed),
                temperature=settings["temperature"],
                in_batch=settings.get("in_batch", True),
                mask_false=settings["mask_false"],
                drop_words=settings.get("drop_words", 0.0),
                size=settings["size"],
                seed=seed,
            )
        return contrasts.contrast(
            embed,
            queries,
            others,
            mined(bench, settings, seed),
            margin=settings["margin"],
            unit=settings["unit"],
            size=settings["size"],
            seed=seed,
        )

    def validate(params):
        rows = bench.parts.validation
        tuned, every = encoder.with_weights(part.whole(params)), -(-len(bench.parts.train) // USAGE)
        sample = _retriever(bench, name, tuned, every)
        return bench.means(bench.search(sample, rows, progress=False), rows)

    model = store.fitted(
        bench.cfg,
        bench.run,
        name,
        seed,
        settings=settings,
        start=lambda: part.start,
        recipe=lambda: recipe()._replace(frozen=part.frozen),
        validate=validate,
    )
    return _retriever(bench, name, encoder.with_weights(part.whole(model.params)))


def _retriever(bench: Bench, name: str, tuned: encode.TextEncoder, every: int = 1) -> Retriever:
    """By usage (of every so many training queries), or by documents."""
    theta = documents = _vectors(tuned, bench.task.documents, "document")
    if bench.recipes[name]["mine"] == "query2query":
        train = bench.parts.train[::every]
        vectors = _vectors(tuned, bench.texts(train), "query")
        labels = bench.task.labels[train]
        theta = np.asarray(tool2vec(*map(jnp.asarray, (vectors, labels, documents))))
    return dense.dense(name, theta, tuned, cache=None)


def matched(bench: Bench, settings: dict, seed: int) -> Int[np.ndarray, "M 2+m"]:
    """The pairs of DPR, with the best wrong tools of an untrained method, or Tool-Embed's."""
    labels, count = bench.trained_on[1], settings["negatives"]
    if settings["mine"] == "tool_embed":
        items = len(bench.task.documents)
        return pairs.random_negatives(labels, items, count=count, seed=seed)
    train, first = bench.parts.train, settings["hard"]
    found = bench.ranking(
        first, 0, "train", train, lambda: bench.search(bench.untrained(first), train)
    )
    return pairs.hard_negatives(labels, found.items, count=count)


def mined(bench: Bench, settings: dict, seed: int) -> Int[np.ndarray, "M 3"]:
    """The triplets that a recipe asks for."""
    vectors, labels = bench.trained_on
    if settings["mine"] == "query2query":
        found = triplets.query2query(
            vectors,
            labels,
            bench.texts(bench.parts.train),
            window=settings["window"],
            limit=settings["per_anchor"],
            allow_self=settings["allow_self"],
            seed=seed,
        )
        print(
            f"{len(found.positions):,} triplets; {found.without_positive:,} queries have no "
            f"positive in their window, {found.without_negative:,} no negative"
        )
        return found.positions
    count = settings["negatives"]
    return triplets.query2desc(labels, len(bench.task.documents), negatives=count, seed=seed)


def _vectors(encoder: encode.TextEncoder, texts: list[str], kind: encode.Kind) -> np.ndarray:
    return encode.encode(encoder, texts, kind=kind, cache=None, progress=False)
