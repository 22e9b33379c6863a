"""Parts of every trained method: a task's texts, a first stage's candidates, validation, folders.

Letters: N queries, k candidates, I tools.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxret.encoders import TextEncoder
from jaxret.retrieval.ranking import Ranking, mean_metrics
from jaxret.retrieval.retriever import Reranker, Retriever, refine, search
from jaxret.task import Task
from jaxret.training.config import TrainingConfig
from jaxret.training.loop import Objective
from jaxret.training.store import Hooks, fitted
from jaxret.types import Params

CUTS = (3, 5, 7)  # ranks of the validation metrics; fixed, so that stored models are found
KEPT = 128  # length of a ranking


class Words(NamedTuple):
    """The texts of a task."""

    encoder: TextEncoder
    documents: list[str]  # documents of the I tools
    texts: list[str]  # texts of the N queries


def words(task: Task, method: str) -> Words:
    """Returns the texts of a task.

    Args:
      task: a task with texts, documents and an encoder.
      method: the name of the method that needs them, for the error.

    Returns:
      the encoder, the documents and the queries' texts.

    Raises:
      ValueError: if the task was made of vectors alone.
    """
    if task.encoder is None or task.documents is None or task.texts is None:
        raise ValueError(
            f"{method} reads words and {task.name!r} holds vectors alone: make the task with "
            "load_task and an encoder"
        )
    return Words(task.encoder, list(task.documents), list(task.texts))


@dataclass(frozen=True)
class FirstStage:
    """The stage that finds the candidates of a reranker.

    ``rank(task, k)`` returns the k best tools of each query. ``decided_by`` is a JSON value that
    identifies the stage; it is part of the name of the reranker's folder.
    """

    rank: Callable[[Task, int], Ranking]
    decided_by: Any

    @classmethod
    def of(cls, first: "FirstStage | Retriever") -> "FirstStage":
        """Makes a first stage of a retriever; returns a first stage as it is."""
        if isinstance(first, FirstStage):
            return first

        def rank(task: Task, k: int) -> Ranking:
            texts = task.queries if task.texts is None else list(task.texts)
            k = min(k, first.items)
            return search(first, texts, k, tie_order=task.tie_order, progress=False)

        return cls(rank, [first.name, _content(*jax.tree.leaves(first.params))])


def retrieval_scores(retriever: Retriever, validation: Task) -> dict[str, float]:
    """Returns mean recall and nDCG of a retriever at `CUTS`, recall at the smallest cut first."""
    k, order = min(KEPT, retriever.items), validation.tie_order
    texts = list(validation.texts or ())
    return scores(search(retriever, texts, k, tie_order=order, progress=False), validation)


def reranking_scores(reranker: Reranker, validation: Task, first: Ranking) -> dict[str, float]:
    """Returns mean recall and nDCG of a reranker at `CUTS`, recall at the smallest cut first.

    Args:
      reranker: to be scored.
      validation: the queries and their tools.
      first: the first stage's lists of the first so many queries, or of all.

    Returns:
      the metrics by name.
    """
    texts = list(validation.texts or ())[: len(first.items)]
    return scores(refine(reranker, texts, first, progress=False), validation)


def scores(ranking: Ranking, validation: Task) -> dict[str, float]:
    """Returns mean recall and nDCG at those of `CUTS` that are within the lists' length."""
    count, k = ranking.items.shape
    cuts = [cut for cut in CUTS if cut <= k] or [k]
    return mean_metrics(ranking, validation.labels[:count], cuts)


def trained(
    name: str,
    config: TrainingConfig,
    task: Task,
    validation: Task,
    *,
    seed: int,
    folder: str | Path | None,
    hooks: Hooks,
    start: Params,
    objective: Callable[[], Objective],
    model: Callable[[Params], Retriever | Reranker],
    first: FirstStage | None = None,
    deciding: TrainingConfig | None = None,
) -> Params:
    """Trains a model, or reads the parameters of the same model from its folder.

    Args:
      name: name of the method.
      config: configuration of the method.
      task: the training queries.
      validation: the queries on which the best step is chosen. Of a reranker's, only the first
        ``config.validated`` are used where the config has this field.
      seed: seed of weights, order and dropout.
      folder: folder of all models; None keeps nothing.
      hooks: the observers.
      start: the parameters before training.
      objective: makes loss and batches.
      model: makes the retriever or reranker of some parameters, for validation.
      first: the stage before; its candidates are those of a reranker.
      deciding: the config without the fields that change no parameter; None: ``config``.

    Returns:
      the parameters with the highest recall at the smallest of `CUTS` on the validation queries.
    """

    @cache
    def given() -> Ranking:
        assert first is not None
        found = first.rank(validation, config.candidates)  # ty: ignore[missing-attribute]
        return Ranking(*(part[: getattr(config, "validated", None)] for part in found))

    def validate(params):
        made = model(params)
        if isinstance(made, Retriever):
            return retrieval_scores(made, validation)
        return reranking_scores(made, validation, given())

    own, settings = None, {}
    if folder is not None:
        settings = {
            "config": asdict(deciding or config),
            "seed": seed,
            "train": fingerprint(task),
            "validation": fingerprint(validation),
            "first": None if first is None else first.decided_by,
        }
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        own = Path(folder) / f"{name}-{task.name}-{seed}-{digest}"
    return fitted(
        f"{name}-{seed}",
        config,
        seed,
        start=start,
        objective=objective,
        validate=validate,
        folder=own,
        settings=settings,
        hooks=hooks,
    )


def fingerprint(task: Task) -> str:
    """Returns a hash of a task: of its texts and encoder where there are any, else of vectors."""
    parts: tuple[Any, ...] = (task.labels, list(task.ids), list(task.query_ids))
    encoder = task.encoder
    if encoder is None:
        return _content(*parts, task.theta, task.queries)
    prefixes = [encoder.spec.prefix(kind) for kind in ("query", "document")]
    return _content(*parts, encoder.fingerprint, prefixes, task.documents, task.texts)


def _content(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, (np.ndarray, jax.Array)):
            array = np.ascontiguousarray(part)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            digest.update(json.dumps(part).encode())
    return digest.hexdigest()
