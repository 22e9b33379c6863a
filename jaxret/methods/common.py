"""What trained methods share: the words of a task, a first stage's candidates, validation.

Letters: N queries, k candidates, I tools.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxret.encoders import TextEncoder
from jaxret.retrieval.ranking import Ranking, mean_metrics
from jaxret.retrieval.retriever import Reranker, Retriever, refine, search
from jaxret.task import Task
from jaxret.training.config import TrainingConfig
from jaxret.training.objectives import Objective
from jaxret.training.store import Hooks, fitted, model_folder
from jaxret.types import Params

CUTS = (3, 5, 7)  # where models are validated, whatever is reported: others find them again
KEPT = 128  # items of a ranking that are kept


class Words(NamedTuple):
    """A task as texts."""

    encoder: TextEncoder
    documents: list[str]  # of the I tools
    texts: list[str]  # of the N queries


def words(task: Task, method: str) -> Words:
    """The texts of a task, for methods that read words.

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
    """Who names the candidates that a reranker sorts.

    ``rank(task, k)`` gives the k best tools of each query; ``decided_by`` is what JSON can hold of
    what decides them, for the name of the reranker's folder.
    """

    rank: Callable[[Task, int], Ranking]
    decided_by: Any

    @classmethod
    def of(cls, first: "FirstStage | Retriever") -> "FirstStage":
        """A retriever as a first stage."""
        if isinstance(first, FirstStage):
            return first

        def rank(task: Task, k: int) -> Ranking:
            texts = task.queries if task.texts is None else list(task.texts)
            k = min(k, first.items)
            return search(first, texts, k, tie_order=task.tie_order, progress=False)

        return cls(rank, [first.name, _content(*jax.tree.leaves(first.params))])


def retrieval_scores(retriever: Retriever, validation: Task) -> dict[str, float]:
    """Mean recall and nDCG of a retriever at `CUTS`, recall at the first one foremost."""
    k = min(KEPT, retriever.items)
    texts = list(validation.texts or ())
    order = validation.tie_order
    found = search(retriever, texts, k, tie_order=order, progress=False)
    return scores(found, validation)


def reranking_scores(reranker: Reranker, validation: Task, first: Ranking) -> dict[str, float]:
    """The same of a reranker, on the first stage's lists; fewer lists take the first queries."""
    count = len(first.items)
    texts = list(validation.texts or ())[:count]
    return scores(refine(reranker, texts, first, progress=False), validation)


def scores(ranking: Ranking, validation: Task) -> dict[str, float]:
    """The same of the lists of the first so many queries; shorter lists have fewer cuts."""
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
    validate: Callable[[Params], Mapping[str, float]],
    first: FirstStage | None = None,
    deciding: TrainingConfig | None = None,
) -> Params:
    """The parameters that validate best, from `jaxret.training.store`.

    Args:
      name: of the method; with the task and the seed it begins the folder's name.
      config: of the method.
      task: what is trained on.
      validation: what chooses.
      seed: of weights, order and dropout.
      folder: of all models; None keeps nothing.
      hooks: as of `jaxret.training.store.fitted`, like what follows.
      start: parameters before training.
      objective: makes loss and batches.
      validate: parameters -> numbers.
      first: the stage before, where there is one.
      deciding: the config without what decides no parameter.
    """
    own, settings = None, {}
    if folder is not None:
        settings = {
            "config": asdict(deciding or config),
            "seed": seed,
            "train": fingerprint(task),
            "validation": fingerprint(validation),
            "first": None if first is None else first.decided_by,
        }
        own = model_folder(folder, f"{name}-{task.name}-{seed}", settings)
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
    """A hash of what a task holds: texts and encoder where there are any, else vectors."""
    parts: tuple[Any, ...] = (task.labels, list(task.ids), list(task.query_ids))
    encoder = task.encoder
    if encoder is None:
        return _content(*parts, task.theta, task.queries)
    prefixes = [encoder.spec.prefix(kind) for kind in ("query", "document")]
    return _content(*parts, encoder.fingerprint, prefixes, task.documents, task.texts)


def first_of(ranking: Ranking, count: int) -> Ranking:
    """The lists of the first so many queries."""
    return Ranking(items=ranking.items[:count], scores=ranking.scores[:count])


def _content(*parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, (np.ndarray, jax.Array)):
            array = np.ascontiguousarray(part)
            found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            found.update(json.dumps(part).encode())
    return found.hexdigest()
