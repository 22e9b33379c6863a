"""Query maps: learnt maps of the query, shared by all items.

    logits = Theta u / tau      u = q                no map
                                u = q + M q          linear, M [d, d]
                                u = q + A (B q)      low rank, A [d, r], B [r, d]
                                u = x + M x          mean-centred, x = q minus most of the mean

All items share the map, so each round changes the scores of all. For any coefficients c the
gradient in u is ``Theta^T c / tau``, so the gradient in M is ``(Theta^T c) q^T / tau``, of rank one
too. The mean of the queries does not discriminate between items, but items near it are retrieved
for every query; subtracting it needs no feedback. (ORAG does not change the queries, since their
encoder may serve other catalogues; M belongs to this catalogue, and the encoder is unchanged.)

A map may be updated once per tile of B rounds (``map_every``), by the sum of its rounds' changes:

    u_t = A_k q_t                                   k = t // B, the tile of round t
    A_{k+1} = A_k + sum_{t in tile k} change_t      change_t computed at A_k and at Theta_t

Rows are updated every round; the map, and the mean of a `mean_centred` map, are constant within a
tile. Tiles are counted in rounds, ``State.t``, not in observed rewards. A tile is closed when the
map is read in a later tile, because the last round of a tile may have no feedback, and such a round
must not change the state. A run can therefore resume from any round, bit for bit.

Letters: I items, d width, r rank, B rounds in a tile.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require


class Apply(Protocol):
    """Map queries [..., d] to the vectors [..., d] that are multiplied with rows."""

    def __call__(self, params: Any, queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]: ...


class Change(Protocol):
    """Return the change of the parameters for one round, or the sum over n rounds.

    Args:
      params: parameters of the map.
      query: [d] or [n, d].
      pull: ``step Theta^T c`` of each round, [d] or [n, d]; 0 for a round that does not count.
      counts: [n], 1 for a round that counts, else 0; None: all rounds count.
    """

    def __call__(
        self,
        params: Any,
        query: Float[Array, "*n d"],
        pull: Float[Array, "*n d"],
        counts: Float[Array, " n"] | None = None,
    ) -> Any: ...


class QueryMap(NamedTuple):
    """A query map and its update."""

    name: str  # name of the map in tables
    init: Any  # (width d, dtype) -> initial parameters
    apply: Apply  # maps queries
    change: Change  # computes the change of the parameters


@memoized
def linear(*, rate: float = 3.0) -> QueryMap:
    """Map q to ``q + M q``, with M = 0 at first.

    Args:
      rate: step size of M relative to that of the rows, > 0.

    Raises:
      ValueError: if the rate is not positive.
    """
    require("rate", rate, "> 0", lambda x: x > 0)

    def change(params, query, pull, counts=None):
        del params, counts  # rounds that do not count have pull 0
        return -rate * _outer(pull, query)

    return QueryMap(
        "linear",
        init=lambda width, dtype: jnp.zeros((width, width), dtype),
        apply=lambda params, queries: queries + queries @ params.T,
        change=change,
    )


@memoized
def low_rank(*, rate: float = 3.0, rank: int = 32, seed: int = 0) -> QueryMap:
    """Map q to ``q + A (B q)``, with A = 0 and B random at first, as in LoRA.

    Args:
      rate: step size of A and B relative to that of the rows, > 0.
      rank: r, >= 1.
      seed: seed of the noise N(0, 1/r) in B.

    Raises:
      ValueError: if the rate is not positive, or the rank is below 1.
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


@memoized
def mean_centred(*, rate: float = 3.0, share: float = 0.8, count: float = 20.0) -> QueryMap:
    """Map x to ``x + M x``, where x is the query minus a share of the running mean.

    Args:
      rate: step size of M relative to that of the rows, > 0.
      share: share of the mean that is subtracted, in [0, 1].
      count: pseudo-queries at the origin with which the mean starts, > 0.

    Raises:
      ValueError: if a number is out of its range.
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
    """Return ``pull queries^T``, summed over rounds if there are several."""
    return pull[:, None] * queries[None, :] if pull.ndim == 1 else pull.T @ queries


class TiledMap(NamedTuple):
    """The state of a query map that is updated once per tile of B > 1 rounds.

    The rounds of a tile use one set of parameters; their changes are summed, and added to the
    parameters when the next tile begins.
    """

    params: Any  # parameters of the map at the start of the tile
    change: Any  # sum of the changes of the tile's rounds so far, with the structure of ``params``
    number: Int[Array, ""]  # number of the last tile that had an observed round []


def start_map(params: Any, every: int) -> Any:
    """Return the state of a map before the first round.

    Args:
      params: parameters of the map.
      every: B, rounds between two updates of the map; with 1 the state is just the parameters.
    """
    if every == 1:
        return params
    return TiledMap(params, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32))


def params_at(maps: Any, t: Int[Array, ""], every: int) -> Any:
    """Return the parameters of a map in round t.

    Args:
      maps: state of the map, from `start_map` or `add_change`.
      t: number of the round [].
      every: B, rounds between two updates of the map.
    """
    if every == 1:
        return maps
    over = t // every > maps.number
    return jax.tree.map(lambda p, c: jnp.where(over, p + c, p), maps.params, maps.change)


def add_change(maps: Any, t: Int[Array, ""], every: int, change: Any) -> Any:
    """Return the map after round t.

    Args:
      maps: state of the map, from `start_map` or `add_change`.
      t: number of the round [].
      every: B, rounds between two updates of the map.
      change: change by the round, with the structure of the parameters.
    """
    if every == 1:
        return jax.tree.map(jnp.add, maps, change)
    over = t // every > maps.number
    change = jax.tree.map(lambda old, new: jnp.where(over, 0, old) + new, maps.change, change)
    return TiledMap(params_at(maps, t, every), change, t // every)
