"""What the methods that tune an encoder share: query2query, query2desc, DPR and Tool-Embed.

All of the encoder is trained, or a LoRA beside it. What comes out is one vector a tool, made by the
tuned encoder, for queries that it encodes too.

Letters: I tools, d width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from jaxret import encoders
from jaxret.encoders import TextEncoder
from jaxret.methods import files
from jaxret.methods.common import FirstStage, retrieval_scores, trained, words
from jaxret.retrieval.dense import dense
from jaxret.retrieval.retriever import Retriever
from jaxret.task import Task
from jaxret.training.config import TrainingConfig, from_plain
from jaxret.training.objectives import Objective
from jaxret.training.store import Hooks
from jaxret.training.trainable import Lora, trainable

USAGE = 2048  # training queries, at most, that make Tool2Vec while validating: encoding is slow


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TrainingConfig):
    """What all of them can set."""

    lora: Lora | None = None  # None trains all parameters


def fit_encoder(
    name: str,
    task: Task,
    config: EncoderConfig,
    *,
    validation: Task,
    seed: int,
    folder: str | Path | None,
    hooks: Hooks,
    objective: Callable[[Callable], Objective],
    embeddings: Callable[[Task, TextEncoder, int], Float[np.ndarray, "I d"]],
    first: FirstStage | None = None,
) -> Retriever:
    """Tunes an encoder.

    Args:
      name: of the method.
      task: with texts, documents and the encoder to tune.
      config: how.
      validation: chooses the step.
      seed: of order and dropout.
      folder: where models are kept; None keeps nothing.
      hooks: what looks on.
      objective: ``embed(params, ids, mask, key=) -> vectors`` -> what is minimised.
      embeddings: (task, tuned encoder, n) -> a vector a tool, of every n-th query if of any.
      first: who names wrong tools, where somebody does.
    """
    encoder = words(task, name).encoder
    network = encoder.backbone.network(config.compute)
    part = trainable(network, encoder.params, config.lora, seed)

    def embed(params, ids, mask, key=None):
        return encoder.pool(part.apply(params, ids, mask, key=key), mask)

    def made(params, every=1) -> Retriever:
        tuned = encoder.with_weights(part.whole(params))
        retriever = dense(name, embeddings(task, tuned, every), tuned)
        return retriever._replace(config=config)

    best = trained(
        name,
        config,
        task,
        validation,
        seed=seed,
        folder=folder,
        hooks=hooks,
        start=part.start,
        objective=lambda: objective(embed)._replace(frozen=part.frozen),
        validate=lambda now: retrieval_scores(made(now, -(-len(task) // USAGE)), validation),
        first=first,
    )
    return made(best)


def of_documents(task: Task, encoder: TextEncoder, _: int) -> Float[np.ndarray, "I d"]:
    """Encodes the documents.

    Returns:
      [I, d].
    """
    return vectors(encoder, words(task, "encoder").documents, "document")


def vectors(
    encoder: TextEncoder, texts: list[str], kind: encoders.Kind
) -> Float[np.ndarray, "n d"]:
    """Encodes texts anew, since the encoder is another one at each validation.

    Returns:
      [n, d].
    """
    return encoders.encode(encoder, texts, kind=kind, cache=None, progress=False)


def save_encoder(retriever: Retriever, method: str, folder: str | Path) -> None:
    """Writes the tools' vectors and the tuned encoder's weights."""
    encoder = retriever.encoder
    if encoder is None:
        raise ValueError(f"{retriever.name!r} has no encoder: save what {method}.fit returned")
    params = {"theta": retriever.params, "encoder": encoder.params}
    files.write(folder, method, retriever, params)


def load_encoder(folder: str | Path, method: str, kind: type, encoder: TextEncoder) -> Retriever:
    """Reads them; ``encoder`` is the one that was tuned, with any weights."""
    saved = files.read(folder, method)
    tuned = encoder.with_weights(saved.params["encoder"])
    retriever = dense(saved.name, np.asarray(saved.params["theta"]), tuned)
    return retriever._replace(config=from_plain(kind, saved.config))
