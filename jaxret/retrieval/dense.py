"""Dense retrieval by the inner product of a vector per tool and a vector per query.

    score_i = theta_i . q

The rows theta come from encoded documents, `jaxret.methods` or an online learner.

Letters: B queries, I tools, d width.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.encoders import Encoder, encode
from jaxret.retrieval.retriever import Retriever


def dense(
    name: str,
    theta: Float[ArrayLike, "I d"],
    encoder: Encoder | None,
    *,
    cache: Path | None = None,
) -> Retriever:
    """Make a retriever whose queries are texts, or vectors where there is no encoder.

    Args:
      name: shown in the progress bar and in errors.
      theta: tool embeddings [I, d], of the encoder's width.
      encoder: encodes queries; None: the queries are vectors.
      cache: folder for the queries' vectors; None keeps nothing.
    """
    by_vector = inner_product(name, theta)
    if encoder is None:
        return by_vector

    def read(texts):
        return by_vector.read(encode(encoder, texts, kind="query", cache=cache, progress=False))

    return by_vector._replace(read=read, encoder=encoder, reads="texts")


def inner_product(name: str, theta: Float[ArrayLike, "I d"]) -> Retriever:
    """Make a retriever whose queries are vectors.

    Args:
      name: shown in the progress bar and in errors.
      theta: tool embeddings [I, d].

    Returns:
      a retriever that reads an array [N, d] in place of texts.

    Raises:
      ValueError: where ``theta`` is not a matrix; in a search, where the queries are not [N, d].
    """
    items, width = np.shape(theta)

    def read(vectors):
        if (shape := np.shape(vectors))[1:] != (width,):
            raise ValueError(
                f"{name!r}: queries have the shape {shape} and tools {(items, width)}: "
                "encode both with one encoder"
            )
        return np.asarray(vectors)

    return Retriever(
        name=name,
        read=read,
        params=theta,
        score=_inner_products,
        split=(P("item", None), P()),
        items=items,
        reads="vectors",
    )


def _inner_products(theta, queries):
    # Full precision: the faster default of accelerators rounds scores into ties.
    return jnp.matmul(queries, theta.T, precision=Precision.HIGHEST)
