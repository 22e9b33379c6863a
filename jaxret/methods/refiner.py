"""ToolRefiner: all candidates of a query scored in one pass (Tool2Vec, Section 4.3).

    reranker = fit(train, Config(), validation=validation)           on Tool2Vec, or first=..
    final = refine(reranker, texts, search(first, texts, k=32))

The candidates of the training queries come from the first stage too. Tool2Vec's means contain the
training query itself, both in the candidates' scores and in the vectors that the refiner reads, so
each query is left out of the means of its own tools (``leave_out``). Another first stage is not
retrained without each query; its training candidates are better than those of new queries.

Letters: n queries, B a batch, L tokens or labels, N candidates, I tools, d width of their vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxret.encoders import TextEncoder
from jaxret.methods.common import FirstStage, reranking_scores, trained, words
from jaxret.methods.tool2vec import embeddings, own_left_out, tool2vec_stage
from jaxret.nn.backbone import shallow, shallower
from jaxret.nn.functional import Module
from jaxret.nn.refiner import Places, Projection, refiner
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.retrieval.tokens import features, reader
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training import losses
from jaxret.training.batches import Tokens, shuffled
from jaxret.training.config import TrainingConfig
from jaxret.training.loop import Objective
from jaxret.training.store import Hooks
from jaxret.types import Params


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for small machines.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    candidates: int = 32  # N
    first_weights: tuple[float, ...] = (0.0, 5.0, 10.0, 20.0)  # tried by `with_first`
    prior: float = 0.0  # weight of the first stage's score in the logits, in training and in use
    tools: Literal["tool2vec", "documents"] = "tool2vec"  # the vectors that the refiner reads
    places: Places = "shared"  # rank: the refiner sees the first stage's order; reference: the code
    leave_out: bool = True  # leaves each training query out of the means of its own tools
    inject_missing: bool = False  # right tools that were missed replace the last candidates
    layers: int | None = 3  # number of layers of the backbone; None: all
    projection: Projection = "identity"  # initial projection; normal: N(0, 0.2^2), as the code
    limit: int = 96
    epochs: float = 2
    learning_rate: float = 3e-4

    def __post_init__(self):
        super().__post_init__()
        require("candidates", self.candidates, ">= 1", lambda n: n >= 1)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    first: FirstStage | Retriever | None = None,
    seed: int = 0,
    name: str = "refiner",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Reranker:
    """Train the refiner.

    Args:
      task: the training queries, with texts and an encoder, whose backbone is trained further.
      config: the settings.
      validation: the queries on which the best step is chosen.
      first: the stage whose candidates are refined; None: Tool2Vec of the task.
      seed: seed of weights, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: tracker, progress bar and callbacks of the run.

    Raises:
      ValueError: if the task has no texts, or no encoder with weights.
    """
    texts, _, encoder = words(task, name, ["texts", "encoder"])
    stage = tool2vec_stage(task, config.leave_out) if first is None else FirstStage.of(first)
    tools = embeddings(task) if config.tools == "tool2vec" else task.theta
    _, weights = shallow(encoder.backbone, encoder.params, config.layers)
    network = _network(encoder, tools.shape[1], config)
    params = {**network.init(jax.random.key(seed)), "backbone": weights}
    untrained = build(config, (params, tools), encoder, name)
    table = untrained.params[1]

    def objective():
        found = stage.rank(task, config.candidates)
        own = None
        if config.leave_out and config.tools == "tool2vec":
            own = own_left_out(task.queries, task.labels, task.theta)
        return refinement(
            network,
            encoder.tokens(texts, kind="query", limit=config.limit),
            task.labels,
            found.items,
            tools,
            own=own,
            prior=config.prior * found.scores if config.prior else None,
            inject_missing=config.inject_missing,
            size=config.size,
            seed=seed,
        )

    def with_params(now):
        return untrained._replace(params=(now, table))

    best = trained(
        name,
        config,
        task,
        validation,
        seed=seed,
        folder=folder,
        hooks=hooks,
        start=params,
        objective=objective,
        model=with_params,
        first=stage,
        deciding=replace(config, first_weights=()),
    )
    return with_params(best)


def with_first(
    trained: Reranker, weights: Sequence[float], *, validation: Task, first: FirstStage | Retriever
) -> Reranker:
    """Add the first stage's score, with the weight that validates best.

    Ours: the paper's second stage ignores the scores of the first.

    Args:
      trained: from `fit`.
      weights: to try, such as ``config.first_weights``; of equally good ones the first is taken.
      validation: the queries on which the weight is chosen, by recall at the smallest of
        `jaxret.methods.common.CUTS`.
      first: the stage before.

    Returns:
      the reranker with the chosen weight as its ``prior``.
    """
    found = FirstStage.of(first).rank(validation, trained.config.candidates)

    def score(weight):
        values = reranking_scores(trained._replace(prior=weight), validation, found)
        return next(iter(values.values()))

    return trained._replace(prior=max(weights, key=score))


def build(config: Config, params: Params, encoder: TextEncoder, name: str = "refiner") -> Reranker:
    """Make the reranker of a refiner.

    Args:
      config: the settings that the refiner is trained with.
      params: the network's parameters, and the vectors [I, d] of the tools, those of training; a
        tool that is added later needs only its row.
      encoder: the encoder that the refiner is trained from.
      name: shown in the progress bar and in errors.

    Returns:
      the reranker, with the weight ``config.prior`` of the first stage's score.
    """
    weights, tools = params
    network = _network(encoder, tools.shape[1], config)

    def score(params, features, candidates):
        weights, table = params
        shown = table[jnp.maximum(candidates, 0)]
        return network.apply(weights, features["ids"], features["mask"], shown, candidates >= 0)

    return Reranker(
        name=name,
        read=reader(encoder, config.limit),
        params=(weights, jnp.asarray(tools)),
        score=score,
        prior=config.prior,
        config=config,
    )


def _network(encoder: TextEncoder, width: int, config: Config) -> Module:
    return refiner(
        shallower(encoder.backbone, config.layers),
        width,
        places=config.places,
        projection=config.projection,
        compute=config.compute,
    )


def refinement(
    network: Module,
    tokens: Tokens,
    labels: Int[np.ndarray, "n L"],
    candidates: Int[np.ndarray, "n N"],
    tools: Float[np.ndarray, "I d"],
    *,
    own: Callable[[Int[np.ndarray, " B"]], Float[np.ndarray, "B L d"]] | None = None,
    prior: Float[np.ndarray, "n N"] | None = None,
    inject_missing: bool = False,
    size: int = 32,
    seed: int = 0,
) -> Objective:
    """Make the objective: binary cross-entropy at every candidate (Tool2Vec, Section 4.3).

    What the reference does with right tools that the first stage missed is not published. By
    default the candidates stay as they were retrieved, as in use.

    Args:
      network: from `jaxret.nn.refiner.refiner`.
      tokens: the n queries.
      labels: their tools [n, L], padded with -1.
      candidates: tools found by the first stage [n, N], best first, padded with -1.
      tools: the vectors of all tools [I, d].
      own: maps positions of queries [B] to vectors of their own tools [B, L, d], which replace
        those in ``tools``: `jaxret.methods.tool2vec.own_left_out` where the vectors are means of
        the queries. None replaces nothing.
      prior: the first stage's weighted scores [n, N], added to the logits so that the network
        learns what the first stage does not know. Their mean over all candidates is subtracted: it
        changes no ranking, and the read-out's bias need not learn it. Ours.
      inject_missing: replaces the last candidates by right tools that were missed.
      size: queries per batch.
      seed: seed of the order.

    Raises:
      ValueError: for both ``prior`` and ``inject_missing``: injected tools have no prior.
    """
    if prior is not None and inject_missing:
        raise ValueError("inject_missing: a tool that the first stage missed has no prior score")
    given = np.zeros(candidates.shape, np.float32)
    if prior is not None:
        present = candidates >= 0
        given[present] = prior[present] - prior[present].mean()
    shown = _with_missing(candidates, labels) if inject_missing else candidates

    def collate(rows):
        some, right = shown[rows], labels[rows]
        vectors = tools[np.maximum(some, 0)]
        if own is not None:
            matches = (some[:, :, None] == right[:, None, :]) & (right >= 0)[:, None, :]
            query, column, label = np.nonzero(matches)
            vectors[query, column] = own(rows)[query, label]
        return features([tokens[row] for row in rows]) | {
            "labels": right,
            "candidates": some,
            "prior": given[rows],
            "tools": vectors,
        }

    def loss(params, batch, key):
        present = batch["candidates"] >= 0
        logits = network.apply(
            params, batch["ids"], batch["mask"], batch["tools"], present, key=key
        )
        logits += batch["prior"]
        return losses.multi_label_bce(logits, batch["labels"], batch["candidates"]), {}

    return Objective(loss, shuffled([len(text) for text in tokens], collate, size=size, seed=seed))


def _with_missing(
    candidates: Int[np.ndarray, "n N"], labels: Int[np.ndarray, "n L"]
) -> Int[np.ndarray, "n N"]:
    """Replace the last wrong candidates by right tools that are missing."""
    result = candidates.copy()
    for row, right in zip(result, labels, strict=True):
        right = right[right >= 0]  # a position without a candidate counts as wrong
        missing = [label for label in right if label not in row]
        wrong = [column for column in reversed(range(len(row))) if row[column] not in right]
        row[wrong[: len(missing)]] = missing[: len(wrong)]
    return result
