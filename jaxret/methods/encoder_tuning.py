"""Retrievers whose encoder is tuned on labelled queries, by one of four objectives.

    retriever = fit(train, objective="dpr", validation=validation)
    retriever = fit(train, ToolEmbed(epochs=1), objective="tool_embed", validation=validation)

    query2query   Tool2Vec, Section 5.1.1: queries that share a tool attract, near ones that share
                  none repel; triplets with a margin. Tools are then Tool2Vec's means.
    query2desc    Tool2Vec's baseline: a query attracts its tools' documents and repels random
                  ones; triplets with a margin.
    dpr           Karpukhin et al. 2020: InfoNCE over the documents of a batch and the best wrong
                  tools of a first stage. Theirs has two encoders, inner products, batches of 128
                  and 40 epochs; ORAG (Table 3) compares with DPR and gives no settings.
    tool_embed    Tool-REX, Section 2.5: InfoNCE over the documents of a batch and random tools.
                  Without random tools (``negatives=0``) it trains as ToolBench's retriever.

All parameters of the encoder are trained, or a LoRA. The result is dense retrieval: one vector per
tool, and queries encoded by the tuned encoder.

Letters: n queries, B a batch, L labels or tokens, M examples, m negatives of each, I tools, d
width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret import encoders
from jaxret.encoders import TextEncoder
from jaxret.encoders.padding import COARSE, pad
from jaxret.methods.common import KEPT, FirstStage, trained, words
from jaxret.methods.tool2vec import tool2vec
from jaxret.retrieval.bm25 import bm25
from jaxret.retrieval.dense import dense
from jaxret.retrieval.retriever import Retriever
from jaxret.runtime.validate import require, require_one_of
from jaxret.task import Task
from jaxret.training import losses, negatives, word_dropout
from jaxret.training.batches import Tokens, shuffled
from jaxret.training.config import TrainingConfig
from jaxret.training.loop import Objective
from jaxret.training.store import Hooks
from jaxret.training.trainable import Lora, trainable
from jaxret.types import Params

USAGE = 2048  # the most training queries encoded at a validation of query2query

#: (params, ids, mask, key=) -> vectors [B, d] of texts, not normalised
Embed: TypeAlias = Callable[..., Float[Array, "B d"]]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TrainingConfig):
    """Settings of all four objectives.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    lora: Lora | None = None  # None trains all parameters
    parts: int = 1  # parts of a batch that are encoded one after the other, to save memory

    def __post_init__(self):
        super().__post_init__()
        require("parts", self.parts, ">= 1", lambda n: n >= 1)
        for field, (allowed, holds) in _RANGES.items():
            if hasattr(self, field):
                require(field, getattr(self, field), allowed, holds)
        if isinstance(self, Query2Desc) or not getattr(self, "in_batch", True):
            count = getattr(self, "negatives", 1)
            require("negatives", count, ">= 1, since there are no others", lambda n: n >= 1)


_RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "document_limit": ("None or >= 1", lambda n: n is None or n >= 1),
    "window": (">= 1", lambda n: n >= 1),
    "per_anchor": ("None or >= 1", lambda n: n is None or n >= 1),
    "negatives": (">= 0", lambda n: n >= 0),
    "margin": (">= 0", lambda x: x >= 0),
    "temperature": ("> 0", lambda x: x > 0),
    "drop_words": ("in 0 .. 1", lambda share: 0 <= share <= 1),
}


@dataclass(frozen=True, kw_only=True)
class Query2Query(EncoderConfig):
    """Settings for small machines: fewer triplets per query than in the reference.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    window: int = 100  # nearest training queries to choose triplets from
    per_anchor: int | None = 1  # triplets per query; None: all, at most 25
    allow_self: bool = False  # whether a query may be its own positive, as in the reference
    margin: float = 0.5  # margin of distances between unit vectors, which are at most 2
    unit: bool = True  # compares unit vectors, as retrieval does
    epochs: float = 0.5
    validate: float = 0.125


@dataclass(frozen=True, kw_only=True)
class Query2Desc(EncoderConfig):
    """Settings for small machines: one random negative for each of a query's tools.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    document_limit: int | None = None  # tokens a document is cut to; None: what the encoder reads
    negatives: int = 1  # drawn a query; each of its tools meets each of them
    margin: float = 0.5  # margin of distances between unit vectors, which are at most 2
    unit: bool = True  # compares unit vectors, as retrieval does
    epochs: float = 0.1
    validate: float = 0.025


@dataclass(frozen=True, kw_only=True)
class DPR(EncoderConfig):
    """Settings for small machines.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    document_limit: int | None = None  # tokens a document is cut to; None: what the encoder reads
    negatives: int = 1  # the first stage's best wrong tools
    temperature: float = 0.05  # temperature of the cosines
    mask_false: bool = True  # False: a query's other tools are negatives, as in the reference
    epochs: float = 0.1
    validate: float = 0.025


@dataclass(frozen=True, kw_only=True)
class ToolEmbed(EncoderConfig):
    """Settings for small machines: a batch is 16 x 7 texts.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    document_limit: int | None = None  # tokens a document is cut to; None: what the encoder reads
    negatives: int = 5  # tools drawn at random for each pair
    temperature: float = 0.05  # temperature of the cosines
    in_batch: bool = True  # whether the documents of other rows are negatives too
    mask_false: bool = True  # False: a query's other tools are negatives
    drop_words: float = 0.0  # the largest share of a query's words that is dropped; ours
    size: int = 16
    epochs: float = 0.25
    validate: float = 0.125


#: The settings of each objective.
CONFIGS: dict[str, type[EncoderConfig]] = {
    "query2query": Query2Query,
    "query2desc": Query2Desc,
    "dpr": DPR,
    "tool_embed": ToolEmbed,
}


def fit(
    task: Task,
    config: EncoderConfig | None = None,
    *,
    objective: str,
    validation: Task,
    first: FirstStage | Retriever | None = None,
    seed: int = 0,
    name: str | None = None,
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Retriever:
    """Tune an encoder.

    Args:
      task: with texts, documents and the encoder to tune.
      config: configuration of the objective's class in `CONFIGS`; None: its defaults.
      objective: "query2query", "query2desc", "dpr" or "tool_embed".
      validation: the queries on which the best step is chosen.
      first: for "dpr" alone, the stage whose best wrong tools are negatives; None: BM25.
      seed: seed of draws, order and dropout.
      name: shown in the progress bar and in errors; None: the objective.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: tracker, progress bar and callbacks of the run.

    Returns:
      a retriever with the tuned encoder.

    Raises:
      ValueError: if the task lacks texts, documents or an encoder with weights, the objective is
        unknown, the config is another objective's, or ``first`` is given for one other than "dpr".
    """
    require_one_of("objective", objective, CONFIGS)
    config = CONFIGS[objective]() if config is None else config
    if type(config) is not CONFIGS[objective]:
        raise ValueError(f"{objective} has the settings {CONFIGS[objective].__name__}(..)")
    if first is not None and objective != "dpr":
        raise ValueError(f"{objective} takes no first stage: it draws its negatives itself")
    name = objective if name is None else name
    _, documents, encoder = words(task, name)
    part = trainable(encoder.backbone.network(config.compute), encoder.params, config.lora, seed)
    stage = None
    if objective == "dpr":
        stage = FirstStage.of(bm25(documents) if first is None else first)

    def whole(params, ids, mask, key=None):
        return encoder.pool(part.apply(params, ids, mask, key=key), mask)

    embed = whole if config.parts == 1 else in_parts(whole, config.parts)

    def fitted(params, every=1) -> Retriever:
        tuned = encoder.with_weights(part.whole(params))
        theta = _embeddings(task, tuned, every if objective == "query2query" else None)
        return dense(name, theta, tuned)._replace(config=config)

    def made() -> Objective:
        return _objective(embed, task, config, stage, seed, hooks)._replace(frozen=part.frozen)

    best = trained(
        name,
        config,
        task,
        validation,
        seed=seed,
        folder=folder,
        hooks=hooks,
        start=part.start,
        objective=made,
        model=lambda now: fitted(now, -(-len(task) // USAGE)),
        first=stage,
    )
    return fitted(best)


def build(config: EncoderConfig, params: Params, encoder: TextEncoder, name: str) -> Retriever:
    """Make the retriever of saved parameters.

    Args:
      config: the settings that the encoder was tuned with.
      params: the tools' vectors [I, d], and the tuned encoder's weights.
      encoder: the encoder that was tuned, with any weights.
      name: shown in the progress bar and in errors.
    """
    theta, weights = params
    return dense(name, theta, encoder.with_weights(weights))._replace(config=config)


def with_documents(retriever: Retriever, documents: Sequence[str]) -> Retriever:
    """Return a tuned encoder's retriever for other documents: new texts, or other tools.

    Args:
      retriever: from `fit` or `build`, for "query2desc", "dpr" or "tool_embed".
      documents: documents of the I tools that are now retrieved.

    Raises:
      ValueError: for another retriever, whose rows are not encoded documents.
    """
    encoder = retriever.encoder
    if not isinstance(retriever.config, Query2Desc | DPR | ToolEmbed) or encoder is None:
        raise ValueError(
            f"the tools of {retriever.name!r} are not documents: use query2desc, dpr or tool_embed"
        )
    rows = encoders.encode(encoder, documents, kind="document", cache=None, progress=False)
    return dense(retriever.name, rows, encoder)._replace(config=retriever.config)


def _embeddings(task: Task, encoder: TextEncoder, every: int | None) -> Float[np.ndarray, "I d"]:
    """Encode the documents, or compute Tool2Vec from every ``every``-th training query."""

    def vectors(texts: list[str], kind: encoders.Kind):  # the weights change: nothing is cached
        return encoders.encode(encoder, texts, kind=kind, cache=None, progress=False)

    texts, documents, _ = words(task, "encoder")
    rows = vectors(documents, "document")
    if every is None:
        return rows
    queries, labels = vectors(texts[::every], "query"), task.labels[::every]
    return np.asarray(tool2vec(*map(jnp.asarray, (queries, labels, rows))))


def _objective(
    embed: Embed, task: Task, config: Any, stage: FirstStage | None, seed: int, hooks: Hooks
) -> Objective:
    """Make the objective that the class of the config says."""
    texts, documents, encoder = words(task, "encoder")
    queries = encoder.tokens(texts, kind="query", limit=config.limit)
    order = {"size": config.size, "seed": seed}
    if isinstance(config, Query2Query):
        mined = negatives.query2query(
            task.queries,
            task.labels,
            texts,
            window=config.window,
            limit=config.per_anchor,
            allow_self=config.allow_self,
            seed=seed,
        )
        hooks.say(
            f"{len(mined.positions):,} triplets; {mined.without_positive:,} queries have no "
            f"positive in their window, {mined.without_negative:,} no negative"
        )
        margin = {"margin": config.margin, "unit": config.unit}
        return contrast(embed, queries, queries, mined.positions, **margin, **order)
    tools = encoder.tokens(documents, kind="document", limit=config.document_limit)
    if isinstance(config, Query2Desc):
        count = config.negatives
        triplets = negatives.query2desc(task.labels, len(documents), negatives=count, seed=seed)
        margin = {"margin": config.margin, "unit": config.unit}
        return contrast(embed, queries, tools, triplets, **margin, **order)
    options = {"temperature": config.temperature, "mask_false": config.mask_false}
    if isinstance(config, ToolEmbed):
        options |= {"in_batch": config.in_batch, "drop_words": config.drop_words}
        count = config.negatives
        pairs = negatives.random_negatives(task.labels, len(documents), count=count, seed=seed)
    else:
        assert stage is not None
        candidates = stage.rank(task, min(KEPT, len(documents))).items
        pairs = negatives.hard_negatives(task.labels, candidates, count=config.negatives)
    return matching(embed, queries, tools, task.labels, pairs, **options, **order)


def in_parts(embed: Embed, parts: int) -> Embed:
    """Encode a batch in parts, and recompute each part's activations in the backward pass.

    Only the activations of one part are kept at a time, and all texts of the batch are still
    compared with each other, which they are not if `TrainingConfig.accumulate` cuts the batch.
    Without dropout the gradient equals that of the whole batch (Gao et al. 2021).

    Args:
      embed: maps tokens to vectors.
      parts: number of parts, which must divide the number of texts.

    Raises:
      ValueError: when it is called, if the parts do not divide the texts.
    """

    def embed_in_parts(params, ids, mask, key=None):
        if len(ids) % parts:
            raise ValueError(f"parts={parts} must divide the {len(ids)} texts of a batch")

        def one(line):
            i, ids, mask = line
            return embed(params, ids, mask, key=None if key is None else jax.random.fold_in(key, i))

        ids, mask = (x.reshape(parts, -1, x.shape[-1]) for x in (ids, mask))
        vectors = jax.lax.map(jax.checkpoint(one), (jnp.arange(parts), ids, mask))
        return vectors.reshape(-1, vectors.shape[-1])

    return embed_in_parts


def contrast(
    embed: Embed,
    anchors: Tokens,
    others: Tokens,
    triplets: Int[np.ndarray, "M 3"],
    *,
    margin: float = 1.0,
    unit: bool = True,
    size: int = 32,
    seed: int = 0,
) -> Objective:
    """Make the triplet objective of query2query and query2desc.

    Args:
      embed: maps tokens to vectors.
      anchors: texts that the first column of ``triplets`` indexes.
      others: texts that the second and third column index.
      triplets: anchor, positive, negative [M, 3], from `jaxret.training.negatives`.
      margin: margin of the distances.
      unit: compares unit vectors, as retrieval does; the reference compares raw ones.
      size: triplets per batch; a batch has 3 times as many texts.
      seed: seed of the order.
    """

    def by_role(x):  # [3 B, L] -> [B, 3, L]
        return x.reshape(3, -1, x.shape[-1]).swapaxes(0, 1)

    def collate(rows):
        anchor, positive, negative = triplets[rows].T
        texts = [anchors[i] for i in anchor]
        texts += [others[i] for i in positive] + [others[i] for i in negative]
        ids, mask = pad(texts, COARSE)
        return {"ids": by_role(ids), "mask": by_role(mask)}

    def loss(params, batch, key):
        def flat(x):  # [B, 3, L] -> [3 B, L]
            return x.swapaxes(0, 1).reshape(-1, x.shape[-1])

        vectors = embed(params, flat(batch["ids"]), flat(batch["mask"]), key=key)
        anchor, positive, negative = jnp.split(vectors, 3)
        return losses.triplet_margin(anchor, positive, negative, margin=margin, unit=unit), {}

    longest = np.array([len(text) for text in others])[triplets[:, 1:]].max(axis=1)
    return Objective(loss, shuffled(longest, collate, size=size, seed=seed))


def matching(
    embed: Embed,
    queries: Tokens,
    documents: Tokens,
    labels: Int[np.ndarray, "n L"],
    pairs: Int[np.ndarray, "M 2+m"],
    *,
    temperature: float = 0.05,
    in_batch: bool = True,
    mask_false: bool = True,
    drop_words: float = 0.0,
    size: int = 32,
    seed: int = 0,
) -> Objective:
    """Make the InfoNCE objective of DPR and Tool-Embed, on unit vectors.

    Args:
      embed: maps tokens to vectors.
      queries: the n queries.
      documents: the documents of the I tools.
      labels: all tools of each query [n, L].
      pairs: query, right tool, wrong tools [M, 2 + m], from `jaxret.training.negatives`.
      temperature: temperature of the cosines.
      in_batch: whether rows serve each other as negatives.
      mask_false: whether documents of a query's other tools are left out of its negatives. The
        references keep them, so that a query repels right tools.
      drop_words: the largest share of a query's words that is dropped, anew in each batch. Ours.
      size: pairs per batch; a batch has 2 + m times as many texts.
      seed: seed of the order.

    Raises:
      ValueError: for a share of words outside 0 .. 1.
    """
    word_dropout.check(drop_words)
    width, kept = pairs.shape[1], word_dropout.frame(queries)

    def collate(rows):
        query, shown = pairs[rows, 0], pairs[rows, 1:]
        texts = [queries[i] for i in query]
        texts += [documents[i] for i in np.maximum(shown, 0).T.ravel()]
        ids, mask = (x.reshape(width, len(rows), -1).swapaxes(0, 1) for x in pad(texts, COARSE))
        right = labels[query] if mask_false else shown[:, :1]
        droppable = word_dropout.droppable([len(queries[i]) for i in query], kept, ids.shape[-1])
        return {"ids": ids, "mask": mask, "words": droppable, "labels": right, "tools": shown}

    def loss(params, batch, key):
        mask = batch["mask"]
        if drop_words:
            key, draws = jax.random.split(key)
            left = word_dropout.drop(draws, mask[:, 0], batch["words"], drop_words)
            mask = jnp.concatenate([left[:, None], mask[:, 1:]], axis=1)
        ids, mask = (x.reshape(-1, x.shape[-1]) for x in (batch["ids"], mask))
        vectors = embed(params, ids, mask, key=key)
        vectors = vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors.reshape(-1, width, vectors.shape[1])
        value = losses.info_nce(
            vectors[:, 0],
            vectors[:, 1],
            batch["labels"],
            batch["tools"][:, 0],
            vectors[:, 2:],
            batch["tools"][:, 1:],
            temperature=temperature,
            in_batch=in_batch,
        )
        return value, {}

    longest = [
        max(len(queries[row[0]]), *(len(documents[i]) for i in row[1:] if i >= 0)) for row in pairs
    ]
    return Objective(loss, shuffled(longest, collate, size=size, seed=seed))
