"""MLC: tool retrieval as multi-label classification, one logit per tool (Tool2Vec, Section 4.2).

    retriever = fit(train, Config(epochs=3), validation=validation)
    ranking = search(retriever, texts, k=10)

The classifier can return only the tools that it was trained on, and does not read their documents.

Letters: n queries, B a batch, L tokens or labels, I tools, H hidden width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.encoders import TextEncoder
from jaxret.encoders.padding import pad
from jaxret.methods.common import trained, words
from jaxret.methods.tool2vec import embeddings
from jaxret.nn.classifier import Pool, classifier
from jaxret.nn.functional import Module
from jaxret.nn.layers import mean_pool
from jaxret.retrieval.retriever import Retriever
from jaxret.retrieval.tokens import features, reader
from jaxret.task import Task
from jaxret.training import losses
from jaxret.training.batches import Tokens, shuffled
from jaxret.training.config import TrainingConfig
from jaxret.training.loop import Objective
from jaxret.training.store import Hooks
from jaxret.types import Params, PRNGKey

LOSSES = {"softmax_ce": losses.softmax_ce, "bce": losses.multi_label_bce}
SCALE = 20.0  # scale of the first logits, as multiples of the cosine


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for small machines: the head starts from Tool2Vec, so that few epochs are enough.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    pool: Pool = "mean"  # context: first token, dense layer, activation
    head: Literal["tool2vec", "random"] = "tool2vec"  # initial head; the reference's is random
    objective: Literal["softmax_ce", "bce"] = "softmax_ce"  # as in the reference; bce: the paper's
    limit: int = 96
    learning_rate: float = 2e-4


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    seed: int = 0,
    name: str = "mlc",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Retriever:
    """Train the classifier.

    Args:
      task: the training queries, with texts and an encoder, whose backbone is trained further.
      config: the settings.
      validation: the queries on which the best step is chosen.
      seed: seed of weights, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: tracker, progress bar and callbacks of the run.

    Raises:
      ValueError: if the task has no texts, or no encoder with weights.
    """
    texts, _, encoder = words(task, name, ["texts", "encoder"])
    items, pool = len(task.ids), config.pool
    network = classifier(encoder.backbone, items, pool=pool, compute=config.compute)
    key = jax.random.key(seed)
    if config.head == "random":
        params = start(network, encoder, key)
    else:
        length = _pooled_length(encoder, texts[:256], config.limit)
        params = start(network, encoder, key, tools=embeddings(task), length=length)
    untrained = build(config, params, encoder, name)

    def objective():
        tokens = encoder.tokens(texts, kind="query", limit=config.limit)
        loss = LOSSES[config.objective]
        return classification(network, tokens, task.labels, loss=loss, size=config.size, seed=seed)

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
        model=lambda now: untrained._replace(params=now),
    )
    return untrained._replace(params=best)


def start(
    network: Module,
    encoder: TextEncoder,
    key: PRNGKey,
    *,
    tools: Float[ArrayLike, "I H"] | None = None,
    length: float = 1.0,
) -> Params:
    """Make the parameters before training: the encoder's weights under a head.

    Args:
      network: from `jaxret.nn.classifier.classifier`.
      encoder: the encoder whose backbone the network has.
      key: key of the weights that no checkpoint has.
      tools: vectors [I, H] that the head starts from, usually Tool2Vec's; with the mean pool MLC
        then starts as that retriever. None draws a random head, as the reference does.
      length: the approximate length of queries' pooled vectors, by which the first logits are
        divided so that their softmax is neither flat nor one-hot: 4.6 for MiniLM.

    Raises:
      ValueError: if the vectors have another width than the head.
    """
    params = {**network.init(key), "backbone": encoder.params}
    if tools is None:
        return params
    kernel = SCALE / length * jnp.asarray(tools, jnp.float32).T
    if kernel.shape != params["head"]["kernel"].shape:
        raise ValueError(
            f"tools have the shape {np.shape(tools)}, the head wants "
            f"{params['head']['kernel'].shape[::-1]}: encode them with the backbone that is trained"
        )
    return {**params, "head": {"kernel": kernel, "bias": jnp.zeros(kernel.shape[1])}}


def build(config: Config, params: Params, encoder: TextEncoder, name: str = "mlc") -> Retriever:
    """Make the retriever of a classifier.

    Only the head is split over devices; every device runs the whole backbone.

    Args:
      config: the settings that the classifier is trained with.
      params: parameters of the network, from `start` or after training.
      encoder: the encoder that the classifier is trained from.
      name: shown in the progress bar and in errors.
    """
    items = params["head"]["kernel"].shape[1]
    network = classifier(encoder.backbone, items, pool=config.pool, compute=config.compute)
    head = {"kernel": P(None, "item"), "bias": P("item")}

    def score(params, features):
        return network.apply(params, features["ids"], features["mask"])

    return Retriever(
        name=name,
        read=reader(encoder, config.limit),
        params=params,
        score=score,
        split=(dict.fromkeys(params, P()) | {"head": head}, P()),
        items=items,
        config=config,
    )


def classification(
    network: Module,
    tokens: Tokens,
    labels: Int[np.ndarray, "n L"],
    *,
    loss: Callable[[Array, Array], Float[Array, ""]] = losses.softmax_ce,
    size: int = 32,
    seed: int = 0,
) -> Objective:
    """Make the objective: classify a query's tokens (Tool2Vec, Section 4.2).

    The paper describes one binary decision per tool (`losses.multi_label_bce`). Its code minimises
    the softmax cross-entropy of all right tools, which is the default here.

    Args:
      network: the classifier.
      tokens: the n queries.
      labels: their tools [n, L], padded with -1.
      loss: maps logits [B, I] and labels [B, L] to the mean loss.
      size: queries per batch.
      seed: seed of the order.
    """

    def collate(rows):
        return features([tokens[row] for row in rows]) | {"labels": labels[rows]}

    def batch_loss(params, batch, key):
        logits = network.apply(params, batch["ids"], batch["mask"], key=key)
        return loss(logits, batch["labels"]), {}

    return Objective(
        batch_loss, shuffled([len(text) for text in tokens], collate, size=size, seed=seed)
    )


def _pooled_length(encoder, texts, limit) -> float:
    """Return the mean length of queries' pooled vectors before training."""
    ids, mask = map(jnp.asarray, pad(encoder.tokens(texts, kind="query", limit=limit)))
    pooled = mean_pool(jax.jit(encoder.network.apply)(encoder.params, ids, mask), mask)
    return float(jnp.linalg.norm(pooled, axis=1).mean())
