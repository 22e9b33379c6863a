"""Tool-Rank: a language model, trained to say whether a tool fits (Tool-REX, Section 2.5).

    reranker = fit(train, Config(path=folder), validation=validation, first=first)
    final = refine(reranker, texts, search(first, texts, k=32))

The model as it is published, untrained by us, is in `jaxret.methods.tool_rank_model`; what it is
asked, in `jaxret.methods.tool_rank_prompt`.

Letters: M rows of pairs, m negatives of each, B examples a batch, I tools.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int

from jaxret.methods import files
from jaxret.methods.common import FirstStage, first_of, reranking_scores, trained, words
from jaxret.methods.tool2vec import tool2vec_stage
from jaxret.methods.tool_rank_model import (
    LanguageModel,
    load_language_model,
    reader,
    reranker,
    scorer,
)
from jaxret.methods.tool_rank_objective import verdicts
from jaxret.methods.tool_rank_prompt import PLACES, Place, Verdict, verdict
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training import pairs, word_dropout
from jaxret.training.config import TrainingConfig, from_plain, require_one_of
from jaxret.training.store import Hooks
from jaxret.training.trainable import Lora, trainable

HARD = ("candidates", "random")


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for a small model.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    weights: str = "qwen3_reranker_0_6b"  # where training starts, see `RERANKERS`
    path: str | None = None  # a folder in HuggingFace layout; None looks on the hub
    answers: tuple[str, str] = ("true", "false")
    place: Place = "query"  # of the instruction: in front of the query, or a line of its own
    instruction: str = ""  # none, as in the paper's figure
    prompt: str | None = None  # a file of other words, with the placeholders of ours
    candidates: int = 32  # of the first stage, reranked
    leave_out: bool = False  # a training query, of Tool2Vec's means of its tools
    hard: Literal["candidates", "random"] = "random"  # wrong tools: the first stage's best, or any
    negatives: int = 1
    redraws: int = 30  # times that random ones are drawn anew: all of them are an epoch
    lora: Lora | None = None  # None trains all parameters
    drop_words: float = 1.0  # of a query: up to this share is left out, anew each time; ours
    limit: int = 48
    document_limit: int = 32  # tokens
    pairs: int = 16  # that are scored together
    size: int = 64
    epochs: float = 2
    learning_rate: float = 1e-3
    warmup: float = 0.1
    weight_decay: float = 0.1
    validate: float = 0.1
    validated: int = 202  # queries of the validation part that are looked at

    def __post_init__(self):
        super().__post_init__()
        require_one_of("hard", self.hard, HARD)
        require_one_of("place", self.place, PLACES)
        word_dropout.check(self.drop_words)
        counts = ("candidates", "negatives", "redraws", "document_limit", "pairs", "validated")
        for field in counts:
            require(field, getattr(self, field), ">= 1", lambda n: n >= 1)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    first: FirstStage | Retriever | None = None,
    seed: int = 0,
    name: str = "tool_rank",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Reranker:
    """Trains the language model.

    Args:
      task: with texts and documents.
      config: which model, and how.
      validation: chooses the step.
      first: whose candidates are reranked; None: Tool2Vec of the task.
      seed: of the adapter, draws and order.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: what looks on.

    Raises:
      ValueError: if the task has no texts.
      FileNotFoundError: if the weights are nowhere.
    """
    _, documents, texts = words(task, name)
    stage = tool2vec_stage(task, config.leave_out) if first is None else FirstStage.of(first)
    model, asked = _model(config)
    hooks.say(f"{config.weights}: {model.memory()}")  # before anything is loaded
    params = model.params(asked)
    part = trainable(model.network(asked, config.compute), params, config.lora, seed)
    untrained = reranker(
        model.network(asked), params, asked, documents, pairs=config.pairs, name=name
    )
    untrained = untrained._replace(config=config)
    table = untrained.params[1]

    def with_params(now):
        return untrained._replace(params=(part.whole(now), table))

    def objective():
        made = verdicts(
            part.apply,
            asked.heads(texts),
            asked.tails(documents),
            _pairs(task, config, stage, seed),
            drop_words=config.drop_words,
            size=config.size,
            seed=seed,
        )
        return made._replace(frozen=part.frozen)

    given = cache(lambda: first_of(stage.rank(validation, config.candidates), config.validated))
    best = trained(
        name,
        config,
        task,
        validation,
        seed=seed,
        folder=folder,
        hooks=hooks,
        start=part.start,
        objective=objective,
        validate=lambda now: reranking_scores(with_params(now), validation, given()),
        first=stage,
    )
    return with_params(best)


def save(reranker: Reranker, folder: str | Path) -> None:
    """Writes what `fit` returned, all parameters; see `jaxret.methods.files`."""
    network, (ids, mask) = reranker.params
    params = {"network": network, "documents": {"ids": ids, "mask": mask}}
    files.write(folder, "tool_rank", reranker, params)


def load(folder: str | Path) -> Reranker:
    """Reads a reranker; tokenizer and architecture are found as its config says."""
    saved = files.read(folder, "tool_rank")
    config, table = from_plain(Config, saved.config), saved.params["documents"]
    model, asked = _model(config)
    return Reranker(
        name=saved.name,
        read=reader(asked),
        params=(saved.params["network"], (table["ids"], table["mask"])),
        score=scorer(model.network(asked), config.pairs),
        config=config,
    )


def _model(config: Config) -> tuple[LanguageModel, Verdict]:
    path = None if config.path is None else Path(config.path)
    model = load_language_model(config.weights, path, dtype=config.dtype)
    asked = verdict(
        model.tokenizer,
        answers=config.answers,
        place=config.place,
        instruction=config.instruction,
        prompt=None if config.prompt is None else Path(config.prompt),
        query_limit=config.limit,
        document_limit=config.document_limit,
    )
    return model, asked


def _pairs(task: Task, config: Config, stage: FirstStage, seed: int) -> Int[np.ndarray, "M 2+m"]:
    """Query, right tool and wrong ones."""
    if config.hard == "candidates":
        found = stage.rank(task, config.candidates).items
        return pairs.hard_negatives(task.labels, found, count=config.negatives)
    draws = [
        pairs.random_negatives(
            task.labels, len(task.ids), count=config.negatives, seed=seed + 1000 * i
        )
        for i in range(config.redraws)
    ]
    return np.concatenate(draws)
