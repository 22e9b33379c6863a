"""Maps of the query that all tools share and learn together.

    logits = Theta u / tau      u = q                none: every other learner
                                u = q + M q          linear, M [d, d]
                                u = q + A (B q)      low rank, A [d, r], B [r, d]
                                u = x + M x          mean-centred, x = q less most of the mean

A row learns from the rounds of its own tool alone, a map from all of them. For any coefficients c
the gradient by u is ``Theta^T c / tau``, so that of M is ``(Theta^T c) q^T / tau``: rank one too.
What all queries have in common tells no tool from another, but tools that lie near it are shown for
everything; to take it out needs no feedback at all.
(ORAG leaves the queries alone, since their encoder may serve others; M belongs to this catalogue
and the encoder is not touched.)

Letters: I items, d width, r rank.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.runtime.validate import require


class Apply(Protocol):
    """Turns queries ``[..., d]`` into what the rows are compared with, ``[..., d]``."""

    def __call__(self, params: Any, queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]: ...


class Change(Protocol):
    """What is added to the map for one round, or for n together; like params.

    Args:
      params: of the map.
      query: [d] or [n, d].
      pull: ``step Theta^T c`` of each, by which u should move down; 0 for one that is left out.
      counts: [n], whether each is a round at all, 0 or 1; None: all are.
    """

    def __call__(
        self,
        params: Any,
        query: Float[Array, "*n d"],
        pull: Float[Array, "*n d"],
        counts: Float[Array, " n"] | None = None,
    ) -> Any: ...


class QueryMap(NamedTuple):
    """A named map, and how it is learnt."""

    name: str
    init: Any  # d, dtype -> params
    apply: Apply
    change: Change


def linear(*, rate: float = 3.0) -> QueryMap:
    """``q + M q``, M from zero.

    Args:
      rate: step size of M relative to that of the rows, > 0.
    """
    require("rate", rate, "> 0", lambda x: x > 0)

    def change(params, query, pull, counts=None):
        del params, counts  # a round that is left out pulls nowhere
        return -rate * _outer(pull, query)

    return QueryMap(
        "linear",
        init=lambda width, dtype: jnp.zeros((width, width), dtype),
        apply=lambda params, queries: queries + queries @ params.T,
        change=change,
    )


def low_rank(*, rate: float = 3.0, rank: int = 32, seed: int = 0) -> QueryMap:
    """``q + A (B q)``, A from zero and B from noise, as LoRA has it.

    Args:
      rate: step size of A and B relative to that of the rows, > 0.
      rank: r, >= 1.
      seed: of the noise, N(0, 1/r).
    """
    require("rate", rate, "> 0", lambda x: x > 0)
    require("rank", rank, ">= 1", lambda x: x >= 1)

    def init(width, dtype):
        noise = jax.random.normal(jax.random.key(seed), (rank, width), dtype)
        return jnp.zeros((width, rank), dtype), noise / rank**0.5

    def change(params, query, pull, counts=None):
        del counts
        a, b = params
        return -rate * _outer(pull, query @ b.T), -rate * _outer(pull @ a, query)

    return QueryMap(
        "low_rank",
        init=init,
        apply=lambda params, queries: queries + (queries @ params[1].T) @ params[0].T,
        change=change,
    )


def mean_centred(*, rate: float = 3.0, share: float = 0.8, count: float = 20.0) -> QueryMap:
    """`linear`, of queries less most of their running mean.

    Args:
      rate: of the linear map.
      share: of the mean that is taken out, in [0, 1].
      count: queries at the origin that the mean begins with, > 0.
    """
    require("share", share, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("count", count, "> 0", lambda x: x > 0)
    inner = linear(rate=rate)

    def centre(params, queries):
        total, rounds, _ = params
        mean = share * total / (rounds + count)
        return queries - jnp.broadcast_to(mean, queries.shape)

    def change(params, query, pull, counts=None):
        new = jnp.atleast_2d(query)
        counts = jnp.ones(len(new), new.dtype) if counts is None else counts
        matrix = inner.change(params[2], centre(params, query), pull)
        return (counts[:, None] * new).sum(axis=0), counts.sum(), matrix

    return QueryMap(
        "mean_centred",
        init=lambda width, dtype: (
            jnp.zeros(width, dtype),
            jnp.zeros((), dtype),
            inner.init(width, dtype),
        ),
        apply=lambda params, queries: inner.apply(params[2], centre(params, queries)),
        change=change,
    )


def _outer(pull: Float[Array, "*n a"], queries: Float[Array, "*n b"]) -> Float[Array, "a b"]:
    """``pull queries^T``, summed over rounds if there are several."""
    return pull[:, None] * queries[None, :] if pull.ndim == 1 else pull.T @ queries


REGISTRY = {f.__name__: f for f in (linear, low_rank, mean_centred)}
