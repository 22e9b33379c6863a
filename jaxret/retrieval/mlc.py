"""MLC: tool retrieval as multi-label classification, one logit a tool (Tool2Vec, Section 4.2).

    network = classifier(encoder.backbone, I, pool="mean")
    params = start(network, encoder, key, tools=theta)       before training
    retriever = mlc(network, params, encoder, items=I)       after it

It can name only the tools it was trained on, and learns nothing from their documents.

Letters: I tools, H hidden width.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.encoders import TextEncoder
from jaxret.nn.functional import Module
from jaxret.retrieval.retriever import Retriever
from jaxret.retrieval.tokens import reader
from jaxret.types import Params, PRNGKey

SCALE = 20.0  # of the first logits, as multiples of the cosine


def start(
    network: Module,
    encoder: TextEncoder,
    key: PRNGKey,
    *,
    tools: Float[ArrayLike, "I H"] | None = None,
    length: float = 1.0,
) -> Params:
    """Parameters before training: the encoder's weights under a head.

    Args:
      network: from `jaxret.nn.classifier.classifier`.
      encoder: whose backbone the network was built on.
      key: of the weights that no checkpoint has.
      tools: vectors that the head starts from, Tool2Vec's as a rule: with the mean pool MLC then
        begins as that retriever. None draws the head at random, as the reference does.
      length: of the pooled vectors of queries, about, so that the first logits are neither flat
        nor all but certain: 4.6 for MiniLM.
    """
    params = {**network.init(key), "backbone": encoder.params}
    if tools is None:
        return params
    kernel = SCALE / length * jnp.asarray(tools, jnp.float32).T
    if kernel.shape != params["head"]["kernel"].shape:
        raise ValueError(
            f"tools have the shape {np.shape(tools)}, the head wants "
            f"{params['head']['kernel'].shape[::-1]}: encode them with the backbone that is trained"
        )
    return {**params, "head": {"kernel": kernel, "bias": jnp.zeros(kernel.shape[1])}}


def mlc(
    network: Module,
    params: Params,
    encoder: TextEncoder,
    *,
    items: int,
    limit: int | None = None,
    name: str = "mlc",
) -> Retriever:
    """The retriever. Only the head is split over the catalogue: every device reads the query.

    Args:
      network: from `jaxret.nn.classifier.classifier`.
      params: its parameters.
      encoder: for the tokens.
      items: I.
      limit: tokens a query is cut to.
      name: shown in the progress bar and in errors.
    """

    def split(path, leaf):
        in_head = jax.tree_util.keystr(path[:1], simple=True) == "head"
        return P(*[None] * (np.ndim(leaf) - 1), "item") if in_head else P()

    return Retriever(
        name=name,
        read=reader(encoder, limit),
        params=params,
        score=_score(network),
        split=(jax.tree.map_with_path(split, params), P()),
        items=items,
    )


def _score(network):
    def score(params, features):
        return network.apply(params, features["ids"], features["mask"])

    return score
