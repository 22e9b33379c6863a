"""Query2query: Tool2Vec with an encoder that is tuned for it (Tool2Vec, Section 5.1.1).

    retriever = fit(train, Config(), validation=validation)

Queries that share a tool attract, similar ones that do not repel: triplets of queries, mined by
the encoder as it was (`jaxret.training.triplets`). The paper tunes E5-base for one epoch.
"""

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret.encoders import TextEncoder
from jaxret.methods.common import words
from jaxret.methods.encoder_tuning import (
    EncoderConfig,
    fit_encoder,
    load_encoder,
    save_encoder,
    vectors,
)
from jaxret.methods.tool2vec import tool2vec
from jaxret.retrieval.retriever import Retriever
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training import triplets
from jaxret.training.objectives import contrast
from jaxret.training.store import Hooks


@dataclass(frozen=True, kw_only=True)
class Config(EncoderConfig):
    """Settings for small machines: fewer triplets a query, compared as unit vectors.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    window: int = 100  # nearest training queries that are looked at
    per_anchor: int | None = 1  # triplets a query; None: all of up to 25
    allow_self: bool = False  # a query may be its own positive, as in the reference
    margin: float = 0.5  # of distances between unit vectors, which are at most 2
    unit: bool = True  # compares unit vectors, as retrieval will
    epochs: float = 0.5
    validate: float = 0.125

    def __post_init__(self):
        super().__post_init__()
        require("window", self.window, ">= 1", lambda n: n >= 1)
        require("per_anchor", self.per_anchor, "None or >= 1", lambda n: n is None or n >= 1)
        require("margin", self.margin, ">= 0", lambda x: x >= 0)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    seed: int = 0,
    name: str = "query2query",
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
    encoder, _, texts = words(task, name)

    def objective(embed):
        found = triplets.query2query(
            task.queries,
            task.labels,
            texts,
            window=config.window,
            limit=config.per_anchor,
            allow_self=config.allow_self,
            seed=seed,
        )
        hooks.say(
            f"{len(found.positions):,} triplets; {found.without_positive:,} queries have no "
            f"positive in their window, {found.without_negative:,} no negative"
        )
        tokens = encoder.tokens(texts, kind="query", limit=config.limit)
        return contrast(
            embed,
            tokens,
            tokens,
            found.positions,
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
        embeddings=_of_usage,
    )


def save(retriever: Retriever, folder: str | Path) -> None:
    """Writes what `fit` returned, with the tuned weights; see `jaxret.methods.files`."""
    save_encoder(retriever, "query2query", folder)


def load(folder: str | Path, encoder: TextEncoder) -> Retriever:
    """Reads a retriever; ``encoder`` is the one that was tuned, with any weights."""
    return load_encoder(folder, "query2query", Config, encoder)


def _of_usage(task: Task, encoder: TextEncoder, every: int) -> Float[np.ndarray, "I d"]:
    """Tool2Vec by the tuned encoder, of every so many training queries."""
    _, documents, texts = words(task, "query2query")
    rows = vectors(encoder, documents, "document")
    queries, labels = vectors(encoder, texts[::every], "query"), task.labels[::every]
    return np.asarray(tool2vec(*map(jnp.asarray, (queries, labels, rows))))
