"""Parts of every trained method: a task's texts, a first stage's candidates, validation, folders.

Letters: N queries, k candidates, I tools.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxret.encoders import TextEncoder, encoder_name
from jaxret.retrieval.ranking import Ranking, mean_metrics
from jaxret.retrieval.retriever import Reranker, Retriever, refine, search
from jaxret.runtime.files import content_digest
from jaxret.task import Task
from jaxret.training.config import TrainingConfig
from jaxret.training.loop import Objective
from jaxret.training.store import Hooks, fitted
from jaxret.types import Params

CUTS = (3, 5, 7)  # ranks of the validation metrics; fixed, so that stored models are found
KEPT = 128  # length of a ranking


class Words(NamedTuple):
    """Texts, documents and encoder of a task; None where not needed."""

    texts: list[str]  # texts of the N queries
    documents: list[str]  # documents of the I tools
    encoder: TextEncoder  # encoder whose weights are trained further


#: Parts of a task that a method may need -> their descriptions in errors.
NEEDS = {
    "texts": "texts of the queries",
    "documents": "documents of the tools",
    "encoder": "an encoder with weights",
}


def words(task: Task, method: str, needs: Sequence[str] = tuple(NEEDS)) -> Words:
    """Return the texts, documents and encoder of a task, as far as a method needs them.

    Args:
      task: the training queries.
      method: the name of the method, for the error.
      needs: keys of `NEEDS`.

    Returns:
      the texts, the documents and the encoder.

    Raises:
      ValueError: if the task lacks one of them; names all that it lacks.
    """
    if "texts" in needs:
        task.require_queries()
    encoder = task.encoder
    has = {
        "texts": None if task.texts is None else list(task.texts),
        "documents": None if task.documents is None else list(task.documents),
        "encoder": encoder if isinstance(encoder, TextEncoder) else None,
    }
    if missing := [NEEDS[key] for key in needs if has[key] is None]:
        how = "load_task(.., encoder=NAME)"
        if "encoder" not in needs:
            how += " or Task.from_arrays(.., texts=, documents=)"
        elif encoder is not None and has["encoder"] is None:
            how += f"; its encoder {encoder_name(encoder)!r} is a callable"
        needed = ", ".join(NEEDS[key] for key in needs)
        raise ValueError(
            f"{method} needs {needed}; {task.name!r} lacks {', '.join(missing)}: "
            f"make the task with {how}"
        )
    return Words(**has)  # ty: ignore[invalid-argument-type]


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
        """Make a first stage of a retriever; return a first stage as it is."""
        if isinstance(first, FirstStage):
            return first

        def rank(task: Task, k: int) -> Ranking:
            k = min(k, first.items)
            return search(first, task.queries_for(first), k, progress=False)

        return cls(rank, [first.name, _content(*jax.tree.leaves(first.params))])


def reranking_scores(reranker: Reranker, validation: Task, first: Ranking) -> dict[str, float]:
    """Return mean recall and nDCG of a reranker at `CUTS`, recall at the smallest cut first.

    Args:
      reranker: the reranker to score.
      validation: the queries and their tools.
      first: lists of the first stage [M, k], for the first M validation queries.

    Raises:
      ValueError: if the validation queries have no texts.
    """
    texts = words(validation, reranker.name, ["texts"]).texts[: len(first.items)]
    return scores(refine(reranker, texts, first, progress=False), validation)


def scores(ranking: Ranking, validation: Task) -> dict[str, float]:
    """Return mean recall and nDCG at those of `CUTS` that are within the lists' length."""
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
    """Train a model, or read the parameters of the same model from its folder.

    Args:
      name: name of the method.
      config: configuration of the method.
      task: the training queries.
      validation: the queries on which the best step is chosen; a reranker uses only the first
        ``config.validated`` of them, if its config has this field.
      seed: seed of weights, order and dropout.
      folder: folder of all models; None keeps nothing.
      hooks: tracker, progress bar and callbacks of the run.
      start: the parameters before training.
      objective: makes loss and batches.
      model: makes the retriever or reranker of some parameters, for validation.
      first: the stage that finds a reranker's candidates or DPR's negatives; None: there is none.
      deciding: ``config`` without the fields that do not affect parameters; None: ``config``.

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
        if isinstance(made, Reranker):
            return reranking_scores(made, validation, given())
        texts = words(validation, made.name, ["texts"]).texts
        return scores(search(made, texts, min(KEPT, made.items), progress=False), validation)

    own, settings = None, {}
    if folder is not None:
        settings = {
            "config": asdict(deciding or config),
            "seed": seed,
            "train": fingerprint(task),
            "validation": fingerprint(validation),
            "first": None if first is None else first.decided_by,
        }
        if prompt := getattr(config, "prompt", None):
            settings["prompt"] = content_digest(Path(prompt))
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
    """Return a hash of a task: texts and encoder; without a `TextEncoder`, vectors and texts."""
    parts: tuple[Any, ...] = (task.labels, list(task.ids), list(task.query_ids))
    encoder = task.encoder
    if not isinstance(encoder, TextEncoder):
        given = [list(one) for one in (task.documents, task.texts) if one is not None]
        return _content(*parts, task.theta, task.queries, *given)
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
