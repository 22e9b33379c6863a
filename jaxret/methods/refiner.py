"""ToolRefiner: all candidates of a query scored in one pass (Tool2Vec, Section 4.3).

    reranker = fit(train, Config(), validation=validation)           on Tool2Vec, or first=..
    final = refine(reranker, texts, search(first, texts, k=32))

Candidates of the training queries come from the first stage too. Tool2Vec's means would then hold
the query itself, as a candidate's score and in the vector that the refiner sees. So each query is
left out of its own tools' means (``leave_out``). Another first stage is not trained again without
each query: its training candidates are better than those of new queries.

Letters: B queries, L tokens, N candidates, I tools, d width of their vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.encoders import TextEncoder
from jaxret.methods import files
from jaxret.methods.common import FirstStage, reranking_scores, trained, words
from jaxret.methods.refiner_objective import refinement
from jaxret.methods.tool2vec import embeddings, own_left_out, tool2vec_stage
from jaxret.nn.backbone import shallow, shallower
from jaxret.nn.functional import Module
from jaxret.nn.refiner import PLACES, PROJECTIONS, Places, Projection, refiner
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.retrieval.tokens import reader
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training.config import TrainingConfig, from_plain, require_one_of
from jaxret.training.store import Hooks
from jaxret.types import Params, PRNGKey

TOOLS = ("tool2vec", "documents")


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for small machines.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    candidates: int = 32  # N
    first_weights: tuple[float, ...] = (0.0, 5.0, 10.0, 20.0)  # that `with_first` tries
    prior: float = 0.0  # weight of the first stage's score in the logits while training, and later
    tools: Literal["tool2vec", "documents"] = "tool2vec"  # the vectors that the refiner sees
    places: Places = "shared"  # rank: the first stage's order can be seen; reference: as the code
    leave_out: bool = True  # a training query, of the means of its own tools
    inject_missing: bool = False  # right tools that were missed replace the last candidates
    layers: int | None = 3  # of the backbone; None: all
    projection: Projection = "identity"  # where it starts; normal: N(0, 0.2^2), as the code
    limit: int = 96
    epochs: float = 2
    learning_rate: float = 3e-4

    def __post_init__(self):
        super().__post_init__()
        require("candidates", self.candidates, ">= 1", lambda n: n >= 1)
        require_one_of("tools", self.tools, TOOLS)
        require_one_of("places", self.places, PLACES)
        require_one_of("projection", self.projection, PROJECTIONS)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    first: FirstStage | Retriever | None = None,
    seed: int = 0,
    name: str = "refiner",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Reranker:
    """Trains the refiner.

    Args:
      task: with texts and an encoder, whose backbone is trained on.
      config: how.
      validation: chooses the step.
      first: whose candidates are refined; None: Tool2Vec of the task.
      seed: of weights, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: what looks on.

    Raises:
      ValueError: if the task has no texts.
    """
    encoder, _, texts = words(task, name)
    stage = tool2vec_stage(task, config.leave_out) if first is None else FirstStage.of(first)
    tools = embeddings(task) if config.tools == "tool2vec" else task.theta
    backbone, weights = encoder.backbone, encoder.params
    if config.layers is not None:
        backbone, weights = shallow(backbone, weights, config.layers)
    network = _network(backbone, tools.shape[1], config)
    params = start(network, weights, jax.random.key(seed))
    untrained = reranker(network, params, encoder, tools, limit=config.limit, name=name)
    untrained = untrained._replace(prior=config.prior, config=config)

    def objective():
        found = stage.rank(task, config.candidates)
        own = None  # how a training query sees its own tools, where it is part of them
        if config.leave_out and config.tools == "tool2vec":
            own = own_left_out(task.queries, task.labels, task.theta)
        return refinement(
            network,
            encoder.tokens(texts, kind="query", limit=config.limit),
            task.labels,
            found.items,
            tools,
            own=own,
            prior=config.prior * found.scores if config.prior else None,
            inject_missing=config.inject_missing,
            size=config.size,
            seed=seed,
        )

    def with_params(now):
        return untrained._replace(params=(now, untrained.params[1]))

    given = cache(lambda: stage.rank(validation, config.candidates))
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
        validate=lambda now: reranking_scores(with_params(now), validation, given()),
        first=stage,
        deciding=replace(config, first_weights=()),
    )
    return with_params(best)


def with_first(
    trained: Reranker,
    weights: Sequence[float],
    *,
    validation: Task,
    first: FirstStage | Retriever,
) -> Reranker:
    """Adds the first stage's score, with the weight that validates best.

    Ours: the paper lets the second stage forget what the first one thought.

    Args:
      trained: from `fit`.
      weights: to be tried, such as ``config.first_weights``; of equals the first is taken.
      validation: chooses by recall at the first of `jaxret.methods.common.CUTS`.
      first: the stage before.
    """
    found = FirstStage.of(first).rank(validation, trained.config.candidates)

    def score(weight):
        values = reranking_scores(trained._replace(prior=weight), validation, found)
        return next(iter(values.values()))

    return trained._replace(prior=max(weights, key=score))


def save(reranker: Reranker, folder: str | Path) -> None:
    """Writes what `fit` or `with_first` returned; see `jaxret.methods.files`."""
    network, tools = reranker.params
    params = {"network": network, "tools": tools}
    files.write(folder, "refiner", reranker, params, prior=reranker.prior)


def load(folder: str | Path, encoder: TextEncoder) -> Reranker:
    """Reads a refiner; the encoder is the one it was trained from."""
    saved = files.read(folder, "refiner")
    config, tools = from_plain(Config, saved.config), saved.params["tools"]
    backbone = shallower(encoder.backbone, config.layers)
    network = _network(backbone, tools.shape[1], config)
    params = saved.params["network"]
    made = reranker(network, params, encoder, tools, limit=config.limit, name=saved.name)
    return made._replace(prior=saved.facts["prior"], config=config)


def _network(backbone, width, config) -> Module:
    return refiner(
        backbone,
        width,
        places=config.places,
        projection=config.projection,
        compute=config.compute,
    )


def start(network: Module, weights: Params, key: PRNGKey) -> Params:
    """Parameters before training: a backbone's weights, a new projection and read-out."""
    return {**network.init(key), "backbone": weights}


def reranker(
    network: Module,
    params: Params,
    encoder: TextEncoder,
    tools: Float[ArrayLike, "I d"],
    *,
    limit: int | None = None,
    name: str = "refiner",
) -> Reranker:
    """The reranker.

    Args:
      network: from `jaxret.nn.refiner.refiner`.
      params: its parameters.
      encoder: for the tokens.
      tools: the vectors it was trained with; a tool that came later needs only its row.
      limit: tokens a query is cut to.
      name: shown in the progress bar and in errors.
    """

    def score(params, features, candidates):
        network_params, table = params
        shown = table[jnp.maximum(candidates, 0)]
        ids, mask = features["ids"], features["mask"]
        return network.apply(network_params, ids, mask, shown, candidates >= 0)

    return Reranker(
        name=name, read=reader(encoder, limit), params=(params, jnp.asarray(tools)), score=score
    )
