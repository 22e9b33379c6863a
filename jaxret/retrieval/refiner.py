"""ToolRefiner on top of a first stage: all candidates of a query scored in one pass.

    final = refine(tool_refiner(network, params, encoder, tools), texts, first)

Letters: B queries, L tokens, N candidates, I tools, d width of their vectors.
"""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.encoders import TextEncoder
from jaxret.nn.functional import Module
from jaxret.retrieval.retriever import Reranker
from jaxret.retrieval.tokens import reader
from jaxret.types import Params, PRNGKey


def start(network: Module, weights: Params, key: PRNGKey) -> Params:
    """Parameters before training: a backbone's weights, a new projection and read-out."""
    return {**network.init(key), "backbone": weights}


def tool_refiner(
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
