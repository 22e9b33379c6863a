"""A cross-encoder: query and document in one sequence, one logit for each pair.

    reranker = fit(train, Config(), validation=validation, first=first)
    final = refine(reranker, texts, search(first, texts, k=8))

A cross-encoder reads the query anew with each of N candidates, where ToolRefiner takes one pass, so
each score depends on its pair alone. The device lays out ``[CLS] query [SEP] document [SEP]`` from
stored tokens, without padding in between: a pair has the tokens that HuggingFace's tokenizer gives
it where neither text is cut. Here query and document have separate length limits.

Letters: n queries, B a batch, N or k candidates, L labels or tokens of a query, M tokens of a
document, I tools.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.encoders import TextEncoder
from jaxret.encoders.padding import COARSE, pad
from jaxret.methods.common import FirstStage, trained, words
from jaxret.methods.tool2vec import tool2vec_stage
from jaxret.nn.backbone import read_backbone, shallow, shallower
from jaxret.nn.checkpoints import convert
from jaxret.nn.classifier import Pool, classifier, classifier_keys
from jaxret.nn.functional import Module
from jaxret.nn.tensor_files import load_safetensors
from jaxret.retrieval.retriever import Reranker, Retriever
from jaxret.retrieval.tokens import features, pair, reader
from jaxret.runtime.validate import require
from jaxret.task import Task
from jaxret.training import losses
from jaxret.training.batches import Tokens, shuffled
from jaxret.training.config import TrainingConfig
from jaxret.training.loop import Objective
from jaxret.training.store import Hooks
from jaxret.types import Params


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Settings for small machines: a batch is 8 x 8 pairs.

    Raises:
      ValueError: for a value out of its range, naming the field.
    """

    candidates: int = 8  # N, the right one among them; as many are reranked
    leave_out: bool = False  # leaves each training query out of Tool2Vec's means of its tools
    layers: int | None = 3  # number of layers of the backbone; None: all
    pool: Pool = "mean"  # context: first token, dense layer, activation
    document_limit: int = 64  # tokens
    size: int = 8
    epochs: float = 0.05
    learning_rate: float = 1e-4
    validate: float = 0.0125
    validated: int = 200  # validation queries that are used

    def __post_init__(self):
        super().__post_init__()
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
    """Train the cross-encoder.

    Args:
      task: the training queries, with texts, documents and an encoder, whose backbone is trained.
      config: the settings.
      validation: the queries on which the best step is chosen.
      first: the stage whose candidates are reranked; None: Tool2Vec of the task.
      seed: seed of weights, order and dropout.
      name: shown in the progress bar and in errors.
      folder: where models are kept, found again and resumed; None keeps nothing.
      hooks: tracker, progress bar and callbacks of the run.

    Raises:
      ValueError: if the task lacks texts, documents or an encoder with weights.
    """
    texts, documents, encoder = words(task, name)
    stage = tool2vec_stage(task, config.leave_out) if first is None else FirstStage.of(first)
    backbone, weights = shallow(encoder.backbone, encoder.params, config.layers)
    network = classifier(backbone, 1, pool=config.pool, compute=config.compute)
    params = {**network.init(jax.random.key(seed)), "backbone": weights}
    limits = {"query_limit": config.limit, "document_limit": config.document_limit}
    untrained = reranker(network, params, encoder, documents, **limits, name=name)
    untrained = untrained._replace(config=config)
    table, scores = untrained.params[1], _scorer(network)

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
        model=with_params,
        first=stage,
    )
    return with_params(best)


def build(config: Config, params: Params, encoder: TextEncoder, name: str) -> Reranker:
    """Make the reranker of saved parameters.

    Args:
      config: the settings that the cross-encoder was trained with.
      params: the network's parameters, and the documents' tokens and mask.
      encoder: the encoder that the cross-encoder was trained from.
      name: shown in the progress bar and in errors.
    """
    backbone = shallower(encoder.backbone, config.layers)
    network = classifier(backbone, 1, pool=config.pool, compute=config.compute)
    read, score = reader(encoder, config.limit), _scorer(network)
    return Reranker(name=name, read=read, params=params, score=score, config=config)


def read_published(directory: Path) -> tuple[Module, Params]:
    """Read a HuggingFace sequence classifier with one logit, such as the MS MARCO cross-encoders.

    Returns:
      the network and its parameters.

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
    """Make a reranker of a cross-encoder.

    Args:
      network: from `read_published`, or `jaxret.nn.classifier.classifier` with one class.
      params: its parameters.
      encoder: for the tokens; its vocabulary must be the network's.
      documents: the documents of the I tools.
      query_limit: tokens that a query is cut to.
      document_limit: tokens that a document is cut to, including the closing token.
      name: shown in the progress bar and in errors.
    """
    table, read = _table(encoder, documents, document_limit), reader(encoder, query_limit)
    return Reranker(name=name, read=read, params=(params, table), score=_scorer(network))


def with_documents(model: Reranker, encoder: TextEncoder, documents: Sequence[str]) -> Reranker:
    """Return a trained cross-encoder for other documents: new texts, or other tools.

    Args:
      model: a cross-encoder from `fit` or `build`.
      encoder: the encoder that it was trained from, for the tokens.
      documents: documents of the I tools that are now reranked.

    Raises:
      ValueError: if the model is not a trained cross-encoder.
    """
    if not isinstance(model.config, Config):
        raise ValueError(f"{model.name!r} is not a trained cross-encoder")
    table = _table(encoder, documents, model.config.document_limit)
    return model._replace(params=(model.params[0], table))


def _table(encoder: TextEncoder, documents: Sequence[str], limit: int) -> tuple[Array, Array]:
    """Return the tokens of documents and their mask, [I, M] each."""
    # The first token, [CLS], is the query's alone.
    tokens = encoder.tokens(documents, kind="document", limit=limit + 1)
    ids, mask = pad([text[1:] for text in tokens], COARSE)
    return jnp.asarray(ids), jnp.asarray(mask)


def _scorer(network: Module) -> Callable[..., Float[Array, "B k"]]:
    """Make ``score(params, features, candidates [B, k], key=None) -> logits [B, k]``.

    ``params`` are the network's parameters, and the documents' tokens and mask, [I, M] each;
    ``features`` hold ``ids`` and ``mask`` of the queries [B, L].
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


def judgement(
    score: Callable[..., Float[Array, "B N"]],
    tokens: Tokens,
    labels: Int[np.ndarray, "n L"],
    candidates: Int[np.ndarray, "n N"],
    *,
    size: int = 8,
    seed: int = 0,
) -> Objective:
    """Make the objective: select the right tool among wrong candidates.

        - log softmax(s)_right        s the scores of one right tool and of wrong candidates

    This is the usual loss for fine-tuning cross-encoders on passages. A query with several right
    tools gives one example for each; none of its right tools is among the wrong candidates.

    Args:
      score: ``(params, features, candidates, key=)`` -> scores [B, N]; ``features`` hold ``ids``
        and ``mask`` of the queries.
      tokens: the n queries.
      labels: their tools [n, L], padded with -1.
      candidates: tools found by a first stage [n, N], best first, padded with -1; right ones are
        removed.
      size: examples per batch; a batch has size x N pairs.
      seed: seed of the order.
    """
    rows, which = np.nonzero(labels >= 0)
    wrong = [
        [item for item in some if item >= 0 and item not in right]
        for some, right in zip(candidates, labels, strict=True)
    ]
    shown = np.full((len(rows), candidates.shape[1]), -1, np.int32)
    for example, (row, column) in enumerate(zip(rows, which, strict=True)):
        items = [labels[row, column], *wrong[row]][: candidates.shape[1]]
        shown[example, : len(items)] = items

    def collate(examples):
        texts = features([tokens[row] for row in rows[examples]])
        return texts | {"candidates": shown[examples]}

    def loss(params, batch, key):
        scores = score(params, batch, batch["candidates"], key=key)
        scores = jnp.where(batch["candidates"] >= 0, scores, -jnp.inf)
        right = jnp.zeros((len(scores), 1), jnp.int32)  # the right tool is in the first column
        return losses.softmax_ce(scores, right), {}

    lengths = [len(tokens[row]) for row in rows]
    return Objective(loss, shuffled(lengths, collate, size=size, seed=seed))
