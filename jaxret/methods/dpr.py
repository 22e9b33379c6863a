"""DPR: one encoder for queries and documents, tuned by contrast (Karpukhin et al. 2020).

    retriever = fit(train, Config(), validation=validation)

InfoNCE over the documents of a batch and, for each query, the best wrong ones of a first stage,
BM25 as a rule. The paper's has two encoders, inner products, batches of 128 and 40 epochs; ORAG
(Table 3) compares with it and gives no settings.
"""

from dataclasses import dataclass
from pathlib import Path

from jaxret.encoders import TextEncoder
from jaxret.methods.common import KEPT, FirstStage, words
from jaxret.methods.encoder_tuning import (
    EncoderConfig,
    fit_encoder,
    load_encoder,
    of_documents,
    save_encoder,
)
from jaxret.retrieval.bm25 import bm25
from jaxret.retrieval.retriever import Retriever
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training import pairs
from jaxret.training.objectives import matching
from jaxret.training.store import Hooks


@dataclass(frozen=True, kw_only=True)
class Config(EncoderConfig):
    """Settings for small machines, on unit vectors.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    negatives: int = 1  # the first stage's best wrong tools
    temperature: float = 0.05
    mask_false: bool = True  # False: a query's other tools are negatives, as in the reference
    epochs: float = 0.1
    validate: float = 0.025

    def __post_init__(self):
        super().__post_init__()
        require("negatives", self.negatives, ">= 1", lambda n: n >= 1)
        require("temperature", self.temperature, "> 0", lambda x: x > 0)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    first: FirstStage | Retriever | None = None,
    seed: int = 0,
    name: str = "dpr",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Retriever:
    """Tunes the encoder.

    Args:
      task: with texts, documents and the encoder to tune.
      config: how.
      validation: chooses the step.
      first: whose best wrong tools are negatives; None: BM25.
      seed: of draws, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: what looks on.

    Raises:
      ValueError: if the task has no texts.
    """
    encoder, documents, texts = words(task, name)
    stage = FirstStage.of(bm25(documents) if first is None else first)

    def objective(embed):
        found = stage.rank(task, min(KEPT, len(documents))).items
        return matching(
            embed,
            encoder.tokens(texts, kind="query", limit=config.limit),
            encoder.tokens(documents, kind="document", limit=config.limit),
            task.labels,
            pairs.hard_negatives(task.labels, found, count=config.negatives),
            temperature=config.temperature,
            mask_false=config.mask_false,
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
        first=stage,
    )


def save(retriever: Retriever, folder: str | Path) -> None:
    """Writes what `fit` returned, with the tuned weights; see `jaxret.methods.files`."""
    save_encoder(retriever, "dpr", folder)


def load(folder: str | Path, encoder: TextEncoder) -> Retriever:
    """Reads a retriever; ``encoder`` is the one that was tuned, with any weights."""
    return load_encoder(folder, "dpr", Config, encoder)
