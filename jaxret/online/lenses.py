"""How a query is seen before the rows are compared with it: what all tools learn together.

    logits = Theta u / tau      u = q                plain: every other learner
                                u = q + M q          linear, M [d, d]
                                u = q + A (B q)      low rank, A [d, r], B [r, d]
                                u = x + M x          centred, x = q - share (mean of past queries)

A row learns from the rounds of its own tool alone, a lens from all of them. For any coefficients c
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

from jaxret.validate import require


class See(Protocol):
    """Turns queries ``[..., d]`` into what the rows are compared with."""

    def __call__(self, glass: Any, queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]: ...


class Grind(Protocol):
    """Moves the lens by one round, or by n past ones at once.

    Args:
      glass: its arrays.
      query: [d] or [n, d].
      pull: ``step Theta^T c`` of each, by which u should move down.
    """

    def __call__(
        self, glass: Any, query: Float[Array, "*n d"], pull: Float[Array, "*n d"]
    ) -> Any: ...


class Lens(NamedTuple):
    """A named view of queries, and how it is learnt."""

    name: str
    init: Any  # d, dtype -> arrays
    see: See
    grind: Grind


def plain() -> Lens:
    """Queries as they are."""
    return Lens(
        "plain",
        init=lambda width, dtype: (),
        see=lambda glass, queries: queries,
        grind=lambda glass, query, pull: glass,
    )


def linear(*, rate: float) -> Lens:
    """``q + M q``, M from zero.

    Args:
      rate: step size of M relative to that of the rows, > 0.
    """
    require("rate", rate, "> 0", lambda x: x > 0)

    def grind(glass, query, pull):
        return glass - rate * _outer(pull, query)

    return Lens(
        "linear",
        init=lambda width, dtype: jnp.zeros((width, width), dtype),
        see=lambda glass, queries: queries + queries @ glass.T,
        grind=grind,
    )


def low_rank(*, rate: float, rank: int, seed: int = 0) -> Lens:
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

    def grind(glass, query, pull):
        a, b = glass
        return a - rate * _outer(pull, query @ b.T), b - rate * _outer(pull @ a, query)

    return Lens(
        "low_rank",
        init=init,
        see=lambda glass, queries: queries + (queries @ glass[1].T) @ glass[0].T,
        grind=grind,
    )


def centred(*, rate: float, share: float = 0.8, count: float = 20.0) -> Lens:
    """`linear`, of queries less most of their running mean.

    Args:
      rate: of the linear lens.
      share: of the mean that is taken out, in [0, 1].
      count: queries at the origin that the mean begins with, > 0.
    """
    require("share", share, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("count", count, "> 0", lambda x: x > 0)
    inner = linear(rate=rate)

    def less(glass, queries):
        total, seen, _ = glass
        mean = share * total / (seen + count)
        return queries - jnp.broadcast_to(mean, queries.shape)

    def grind(glass, query, pull):
        total, seen, matrix = glass
        rounds = jnp.atleast_2d(query)
        matrix = inner.grind(matrix, less(glass, query), pull)
        return total + rounds.sum(axis=0), seen + len(rounds), matrix

    return Lens(
        "centred",
        init=lambda width, dtype: (
            jnp.zeros(width, dtype),
            jnp.zeros((), dtype),
            inner.init(width, dtype),
        ),
        see=lambda glass, queries: inner.see(glass[2], less(glass, queries)),
        grind=grind,
    )


def _outer(pull: Float[Array, "*n a"], seen: Float[Array, "*n b"]) -> Float[Array, "a b"]:
    """``pull seen^T``, summed over rounds if there are several."""
    return pull[:, None] * seen[None, :] if pull.ndim == 1 else pull.T @ seen
