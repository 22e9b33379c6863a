"""Tool-Embed: an encoder tuned on documents by contrast (Tool-REX, Section 2.5).

    retriever = fit(train, Config(), validation=validation)

InfoNCE over the documents of a batch and tools drawn at random for each pair of query and tool;
all of the encoder is trained, or a LoRA.
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
from jaxret.training import pairs, word_dropout
from jaxret.training.objectives import matching
from jaxret.training.store import Hooks


@dataclass(frozen=True, kw_only=True)
class Config(EncoderConfig):
    """Settings for small machines: a batch is 16 x 7 texts.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    negatives: int = 5  # tools drawn at random for each pair
    temperature: float = 0.05
    in_batch: bool = True  # the documents of other rows are negatives too
    mask_false: bool = True  # False: a query's other tools are negatives
    drop_words: float = 0.0  # of a query: up to this share is left out, anew each time; ours
    size: int = 16
    epochs: float = 0.25
    validate: float = 0.125

    def __post_init__(self):
        super().__post_init__()
        require("negatives", self.negatives, ">= 1", lambda n: n >= 1)
        require("temperature", self.temperature, "> 0", lambda x: x > 0)
        word_dropout.check(self.drop_words)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    seed: int = 0,
    name: str = "tool_embed",
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
        return matching(
            embed,
            encoder.tokens(texts, kind="query", limit=config.limit),
            encoder.tokens(documents, kind="document", limit=config.limit),
            task.labels,
            pairs.random_negatives(task.labels, len(documents), count=config.negatives, seed=seed),
            temperature=config.temperature,
            in_batch=config.in_batch,
            mask_false=config.mask_false,
            drop_words=config.drop_words,
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
    save_encoder(retriever, "tool_embed", folder)


def load(folder: str | Path, encoder: TextEncoder) -> Retriever:
    """Reads a retriever; ``encoder`` is the one that was tuned, with any weights."""
    return load_encoder(folder, "tool_embed", Config, encoder)
