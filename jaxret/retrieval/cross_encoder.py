"""A cross-encoder: query and document in one sequence, a logit for each pair.

    final = refine(cross_encoder(network, params, encoder, documents), texts, first)

It reads every candidate anew, k passes a query where ToolRefiner takes one, and each score is that
of its pair alone. ``[CLS] query [SEP] document [SEP]`` is laid out on the device from tokens that
were made once, without padding in between, so that a pair is what HuggingFace's tokenizer makes of
it (where neither text is cut: each has a limit of its own here).

Letters: B queries, k candidates, L tokens of a query, M of a document, I tools.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret.encoders import TextEncoder
from jaxret.encoders.padding import COARSE, pad
from jaxret.nn.backbone import read_backbone
from jaxret.nn.checkpoints import convert
from jaxret.nn.classifier import classifier, classifier_keys
from jaxret.nn.functional import Module
from jaxret.nn.tensor_files import load_safetensors
from jaxret.retrieval.retriever import Reranker
from jaxret.retrieval.tokens import reader
from jaxret.types import Params


def load(directory: Path) -> tuple[Module, Params]:
    """Reads a HuggingFace sequence classifier with one logit, such as the MS MARCO cross-encoders.

    Raises:
      ValueError: for a checkpoint of another kind, naming what does not fit.
    """
    backbone = read_backbone(directory / "config.json")
    network = classifier(backbone, 1)
    tensors = load_safetensors(directory)
    return network, convert(tensors, classifier_keys(backbone), network.shapes())


def cross_encoder(
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
      network: from `load`, or `jaxret.nn.classifier.classifier` with one class.
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


def pair(
    query: Int[Array, " L"],
    query_mask: Bool[Array, " L"],
    document: Int[Array, " M"],
    document_mask: Bool[Array, " M"],
) -> tuple[Int[Array, " L+M"], Bool[Array, " L+M"], Int[Array, " L+M"]]:
    """Token numbers, mask and types of one pair, the document right behind the query."""
    first, second = query_mask.sum(), document_mask.sum()
    place = jnp.arange(len(query) + len(document))
    behind = place - first
    ids = jnp.where(
        place < first,
        query[jnp.minimum(place, len(query) - 1)],
        document[jnp.clip(behind, 0, len(document) - 1)],
    )
    mask = place < first + second
    return jnp.where(mask, ids, 0), mask, (mask & (behind >= 0)).astype(jnp.int32)
