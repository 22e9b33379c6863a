"""MLC: tool retrieval as multi-label classification, one logit a tool (Tool2Vec, Section 4.2).

    retriever = fit(train, Config(epochs=3), validation=validation)
    ranking = search(retriever, texts, k=10)

It can name only the tools it was trained on, and learns nothing from their documents.

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
from jaxret.encoders.padding import COARSE, pad
from jaxret.methods import files
from jaxret.methods.common import retrieval_scores, trained, words
from jaxret.methods.tool2vec import embeddings
from jaxret.nn.classifier import Pool, classifier
from jaxret.nn.functional import Module
from jaxret.nn.layers import mean_pool
from jaxret.retrieval.retriever import Retriever
from jaxret.retrieval.tokens import reader
from jaxret.task import Task
from jaxret.training import losses
from jaxret.training.batches import shuffled
from jaxret.training.config import TrainingConfig, from_plain, require_one_of
from jaxret.training.objectives import Objective, Tokens
from jaxret.training.store import Hooks
from jaxret.types import Params, PRNGKey

LOSSES = {"softmax_ce": losses.softmax_ce, "bce": losses.multi_label_bce}
HEADS = ("tool2vec", "random")
POOLS = ("mean", "context")
SCALE = 20.0  # of the first logits, as multiples of the cosine


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for small machines: the head starts from Tool2Vec, so that few epochs are enough.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    pool: Pool = "mean"  # context: first token, dense layer, activation
    head: Literal["tool2vec", "random"] = "tool2vec"  # where it starts; random: as the reference
    objective: Literal["softmax_ce", "bce"] = "softmax_ce"  # the reference's; bce: the paper's
    limit: int = 96
    learning_rate: float = 2e-4

    def __post_init__(self):
        super().__post_init__()
        require_one_of("pool", self.pool, POOLS)
        require_one_of("head", self.head, HEADS)
        require_one_of("objective", self.objective, LOSSES)


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
    """Trains the classifier.

    Args:
      task: with texts and an encoder, whose backbone is trained on.
      config: how.
      validation: chooses the step.
      seed: of weights, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: what looks on.

    Raises:
      ValueError: if the task has no texts.
    """
    encoder, _, texts = words(task, name)
    items = len(task.ids)
    network = classifier(encoder.backbone, items, pool=config.pool, compute=config.compute)
    key = jax.random.key(seed)
    if config.head == "random":
        params = start(network, encoder, key)
    else:
        length = _pooled_length(encoder, texts[:256], config.limit)
        params = start(network, encoder, key, tools=embeddings(task), length=length)
    untrained = retriever(network, params, encoder, items=items, limit=config.limit, name=name)

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
        validate=lambda now: retrieval_scores(untrained._replace(params=now), validation),
    )
    return untrained._replace(params=best, config=config)


def save(retriever: Retriever, folder: str | Path) -> None:
    """Writes what `fit` returned; see `jaxret.methods.files`."""
    files.write(folder, "mlc", retriever, retriever.params, items=retriever.items)


def load(folder: str | Path, encoder: TextEncoder) -> Retriever:
    """Reads a classifier; the encoder is the one it was trained from."""
    saved = files.read(folder, "mlc")
    config, items = from_plain(Config, saved.config), saved.facts["items"]
    network = classifier(encoder.backbone, items, pool=config.pool, compute=config.compute)
    made = retriever(
        network, saved.params, encoder, items=items, limit=config.limit, name=saved.name
    )
    return made._replace(config=config)


def start(
    network: Module,
    encoder: TextEncoder,
    key: PRNGKey,
    *,
    tools: Float[ArrayLike, "I H"] | None = None,
    length: float = 1.0,
) -> Params:
    """Parameters before training: the encoder's weights under a head.

    Args:
      network: from `jaxret.nn.classifier.classifier`.
      encoder: whose backbone the network was built on.
      key: of the weights that no checkpoint has.
      tools: vectors that the head starts from, Tool2Vec's as a rule: with the mean pool MLC then
        begins as that retriever. None draws the head at random, as the reference does.
      length: of the pooled vectors of queries, about, so that the first logits are neither flat
        nor all but certain: 4.6 for MiniLM.
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


def retriever(
    network: Module,
    params: Params,
    encoder: TextEncoder,
    *,
    items: int,
    limit: int | None = None,
    name: str = "mlc",
) -> Retriever:
    """The retriever. Only the head is split over the catalogue: every device reads the query.

    Args:
      network: from `jaxret.nn.classifier.classifier`.
      params: its parameters.
      encoder: for the tokens.
      items: I.
      limit: tokens a query is cut to.
      name: shown in the progress bar and in errors.
    """

    def split(path, leaf):
        in_head = jax.tree_util.keystr(path[:1], simple=True) == "head"
        return P(*[None] * (np.ndim(leaf) - 1), "item") if in_head else P()

    return Retriever(
        name=name,
        read=reader(encoder, limit),
        params=params,
        score=_score(network),
        split=(jax.tree.map_with_path(split, params), P()),
        items=items,
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
    """Makes the objective: query tokens -> the tools (Tool2Vec, Section 4.2).

    The paper speaks of a binary decision a tool; its code minimises the softmax cross-entropy of
    all right tools, which is the default here too (`losses.multi_label_bce` is the other).
    """

    def collate(rows):
        ids, mask = pad([tokens[row] for row in rows], COARSE)
        return {"ids": ids, "mask": mask, "labels": labels[rows]}

    def batch_loss(params, batch, key):
        logits = network.apply(params, batch["ids"], batch["mask"], key=key)
        return loss(logits, batch["labels"]), {}

    return Objective(
        batch_loss, shuffled([len(text) for text in tokens], collate, size=size, seed=seed)
    )


def _score(network):
    def score(params, features):
        return network.apply(params, features["ids"], features["mask"])

    return score


def _pooled_length(encoder, texts, limit) -> float:
    """The mean length of pooled queries, before training."""
    ids, mask = map(jnp.asarray, pad(encoder.tokens(texts, kind="query", limit=limit)))
    pooled = mean_pool(jax.jit(encoder.network.apply)(encoder.params, ids, mask), mask)
    return float(jnp.linalg.norm(pooled, axis=1).mean())
