"""Token ids of queries and of pairs, padded to few lengths.

Letters: B queries, L tokens of a query, M of a document.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxret.encoders import TextEncoder
from jaxret.encoders.padding import COARSE, pad


def features(tokens: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Pad the token ids of B texts to ``ids`` and ``mask``, both [B, L]."""
    ids, mask = pad(tokens, COARSE)
    return {"ids": ids, "mask": mask}


def reader(
    encoder: TextEncoder, limit: int | None
) -> Callable[[Sequence[str]], dict[str, np.ndarray]]:
    """Make the ``read`` of a retriever or reranker: the `features` of queries.

    Args:
      encoder: for the tokens.
      limit: tokens that a query is cut to; None: the encoder's.
    """
    return lambda texts: features(encoder.tokens(texts, kind="query", limit=limit))


def pair(
    query: Int[Array, " L"],
    query_mask: Bool[Array, " L"],
    document: Int[Array, " M"],
    document_mask: Bool[Array, " M"],
) -> tuple[Int[Array, " L+M"], Bool[Array, " L+M"], Int[Array, " L+M"]]:
    """Join one pair, the document directly behind the query.

    Args:
      query: token ids [L].
      query_mask: True where there is a token [L].
      document: token ids [M].
      document_mask: True where there is a token [M].

    Returns:
      token ids, mask and types, each [L + M].
    """
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
