"""A cross-encoder: query and document in one sequence, a logit for each pair.

    reranker = fit(train, Config(), validation=validation, first=first)
    final = refine(reranker, texts, search(first, texts, k=8))

It reads every candidate anew, N passes a query where ToolRefiner takes one, and each score is that
of its pair alone. ``[CLS] query [SEP] document [SEP]`` is laid out on the device from tokens that
were made once, without padding in between, so that a pair is what HuggingFace's tokenizer makes of
it (where neither text is cut: each has a limit of its own here).

Letters: n queries, B a batch, N or k candidates, L tokens of a query, M of a document, I tools.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.encoders import TextEncoder
from jaxret.encoders.padding import COARSE, pad
from jaxret.methods import files
from jaxret.methods.common import FirstStage, first_of, reranking_scores, trained, words
from jaxret.methods.cross_encoder_objective import judgement
from jaxret.methods.tool2vec import tool2vec_stage
from jaxret.nn.backbone import read_backbone, shallow, shallower
from jaxret.nn.checkpoints import convert
from jaxret.nn.classifier import Pool, classifier, classifier_keys
from jaxret.nn.functional import Module
from jaxret.nn.tensor_files import load_safetensors
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.retrieval.tokens import pair, reader
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training.config import TrainingConfig, from_plain, require_one_of
from jaxret.training.store import Hooks
from jaxret.types import Params


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for small machines: a batch is 8 x 8 pairs.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    candidates: int = 8  # N, the right one among them; as many are reranked
    leave_out: bool = False  # a training query, of Tool2Vec's means of its tools
    layers: int | None = 3  # of the backbone; None: all
    pool: Pool = "mean"  # context: first token, dense layer, activation
    document_limit: int = 64  # tokens
    size: int = 8
    epochs: float = 0.05
    learning_rate: float = 1e-4
    validate: float = 0.0125
    validated: int = 200  # queries of the validation part that are looked at

    def __post_init__(self):
        super().__post_init__()
        require_one_of("pool", self.pool, ("mean", "context"))
        for field in ("document_limit", "validated"):
            require(field, getattr(self, field), ">= 1", lambda n: n >= 1)
        require("candidates", self.candidates, ">= 2", lambda n: n >= 2)


def fit(
    task: Task,
    config: Config,
    *,
    validation: Task,
    first: FirstStage | Retriever | None = None,
    seed: int = 0,
    name: str = "cross_encoder",
    folder: str | Path | None = None,
    hooks: Hooks = Hooks(),
) -> Reranker:
    """Trains the cross-encoder.

    Args:
      task: with texts, documents and an encoder, whose backbone is trained on.
      config: how.
      validation: chooses the step.
      first: whose candidates are reranked; None: Tool2Vec of the task.
      seed: of weights, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: what looks on.

    Raises:
      ValueError: if the task has no texts.
    """
    encoder, documents, texts = words(task, name)
    stage = tool2vec_stage(task, config.leave_out) if first is None else FirstStage.of(first)
    backbone, weights = encoder.backbone, encoder.params
    if config.layers is not None:
        backbone, weights = shallow(backbone, weights, config.layers)
    network = classifier(backbone, 1, pool=config.pool, compute=config.compute)
    params = {**network.init(jax.random.key(seed)), "backbone": weights}
    limits = {"query_limit": config.limit, "document_limit": config.document_limit}
    untrained = reranker(network, params, encoder, documents, **limits, name=name)
    untrained = untrained._replace(config=config)
    table, scores = untrained.params[1], scorer(network)

    def score(params, features, candidates, key=None):
        return scores((params, table), features, candidates, key)

    def objective():
        return judgement(
            score,
            encoder.tokens(texts, kind="query", limit=config.limit),
            task.labels,
            stage.rank(task, config.candidates).items,
            size=config.size,
            seed=seed,
        )

    def with_params(now):
        return untrained._replace(params=(now, table))

    given = cache(lambda: first_of(stage.rank(validation, config.candidates), config.validated))
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
    )
    return with_params(best)


def save(reranker: Reranker, folder: str | Path) -> None:
    """Writes what `fit` returned; see `jaxret.methods.files`."""
    network, (ids, mask) = reranker.params
    params = {"network": network, "documents": {"ids": ids, "mask": mask}}
    files.write(folder, "cross_encoder", reranker, params)


def load(folder: str | Path, encoder: TextEncoder) -> Reranker:
    """Reads a cross-encoder; the encoder is the one it was trained from."""
    saved = files.read(folder, "cross_encoder")
    config, table = from_plain(Config, saved.config), saved.params["documents"]
    backbone = shallower(encoder.backbone, config.layers)
    network = classifier(backbone, 1, pool=config.pool, compute=config.compute)
    return Reranker(
        name=saved.name,
        read=reader(encoder, config.limit),
        params=(saved.params["network"], (table["ids"], table["mask"])),
        score=scorer(network),
        config=config,
    )


def read_published(directory: Path) -> tuple[Module, Params]:
    """Reads a HuggingFace sequence classifier with one logit, such as the MS MARCO cross-encoders.

    Raises:
      ValueError: for a checkpoint of another kind, naming what does not fit.
    """
    backbone = read_backbone(directory / "config.json")
    network = classifier(backbone, 1)
    tensors = load_safetensors(directory)
    return network, convert(tensors, classifier_keys(backbone), network.shapes())


def reranker(
    network: Module,
    params: Params,
    encoder: TextEncoder,
    documents: Sequence[str],
    *,
    query_limit: int = 64,
    document_limit: int = 128,
    name: str = "cross_encoder",
) -> Reranker:
    """The reranker.

    Args:
      network: from `read_published`, or `jaxret.nn.classifier.classifier` with one class.
      params: its parameters.
      encoder: for the tokens; its vocabulary must be the network's.
      documents: of the I tools.
      query_limit: tokens a query is cut to.
      document_limit: tokens a document is cut to, its closing one counted in.
      name: shown in the progress bar and in errors.
    """
    # The first token, [CLS], is the query's alone.
    tokens = encoder.tokens(documents, kind="document", limit=document_limit + 1)
    ids, mask = pad([text[1:] for text in tokens], COARSE)
    table = (jnp.asarray(ids), jnp.asarray(mask))
    read = reader(encoder, query_limit)
    return Reranker(name=name, read=read, params=(params, table), score=scorer(network))


def scorer(network: Module) -> Callable[..., Float[Array, "B k"]]:
    """``score(params, features, candidates [B, k], key=None) -> [B, k]``, for use and training.

    ``params`` are the network's and the documents' tokens and mask, [I, M] each; ``features`` hold
    ``ids`` and ``mask`` of the queries.
    """

    def score(params, features, candidates, key=None):
        network_params, table = params
        documents = [rows[jnp.maximum(candidates, 0)] for rows in table]  # [B, k, M]
        of_query = jax.vmap(pair, (None, None, 0, 0))
        every = jax.vmap(of_query)(features["ids"], features["mask"], *documents)  # [B, k, L + M]
        ids, mask, types = (x.reshape(-1, x.shape[-1]) for x in every)
        logits = network.apply(network_params, ids, mask, types=types, key=key)
        return logits.reshape(candidates.shape)

    return score
