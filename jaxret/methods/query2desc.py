"""Query2desc: documents, with an encoder tuned on them (Tool2Vec's baseline, Section 5.1.1).

    retriever = fit(train, Config(), validation=validation)

A query attracts its tools' documents and repels random ones: triplets with a margin.
"""

from dataclasses import dataclass
from pathlib import Path

from jaxret.encoders import TextEncoder
from jaxret.methods.common import words
from jaxret.methods.encoder_tuning import (
    EncoderConfig,
    fit_encoder,
    load_encoder,
    of_documents,
    save_encoder,
)
from jaxret.retrieval.retriever import Retriever
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training import triplets
from jaxret.training.objectives import contrast
from jaxret.training.store import Hooks


@dataclass(frozen=True, kw_only=True)
class Config(EncoderConfig):
    """Settings for small machines: one random negative for each of a query's tools.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    negatives: int = 1  # drawn a query; each of its tools meets each of them
    margin: float = 0.5  # of distances between unit vectors, which are at most 2
    unit: bool = True  # compares unit vectors, as retrieval will
    epochs: float = 0.1
    validate: float = 0.025

    def __post_init__(self):
        super().__post_init__()
        require("negatives", self.negatives, ">= 1", lambda n: n >= 1)
        require("margin", self.margin, ">= 0", lambda x: x >= 0)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    seed: int = 0,
    name: str = "query2desc",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Retriever:
    """Tunes the encoder.

    Args:
      task: with texts, documents and the encoder to tune.
      config: how.
      validation: chooses the step.
      seed: of draws, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: what looks on.

    Raises:
      ValueError: if the task has no texts.
    """
    encoder, documents, texts = words(task, name)

    def objective(embed):
        return contrast(
            embed,
            encoder.tokens(texts, kind="query", limit=config.limit),
            encoder.tokens(documents, kind="document", limit=config.limit),
            triplets.query2desc(task.labels, len(documents), negatives=config.negatives, seed=seed),
            margin=config.margin,
            unit=config.unit,
            size=config.size,
            seed=seed,
        )

    return fit_encoder(
        name,
        task,
        config,
        validation=validation,
        seed=seed,
        folder=folder,
        hooks=hooks,
        objective=objective,
        embeddings=of_documents,
    )


def save(retriever: Retriever, folder: str | Path) -> None:
    """Writes what `fit` returned, with the tuned weights; see `jaxret.methods.files`."""
    save_encoder(retriever, "query2desc", folder)


def load(folder: str | Path, encoder: TextEncoder) -> Retriever:
    """Reads a retriever; ``encoder`` is the one that was tuned, with any weights."""
    return load_encoder(folder, "query2desc", Config, encoder)
