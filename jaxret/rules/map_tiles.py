"""A query map that moves once in a tile of B rounds, by all that its rounds ask for together.

    u_t = A_k q_t                                   k = t // B, the tile of round t
    A_{k+1} = A_k + sum_{t in tile k} change_t      change_t taken at A_k and at Theta_t

Rows move every round, so Theta_t is that of round t; what a map knows, the mean of a `mean_centred`
one too, stands still from a tile's first round to its last. With B = 1 a map moves in every round,
and a state holds nothing but the map.

Tiles are counted in rounds of the learner, ``State.t``, and not in answers. A tile is closed by
whoever looks at the map in a later one: a round without an answer, which must leave the state as it
is, may be a tile's last. So a state says all, and a run goes on from any round bit for bit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int


class Tile(NamedTuple):
    """What `State.extra` holds in the map's place where B > 1."""

    params: Any  # of the map when the tile began
    change: Any  # sum over the tile's rounds so far; like params
    number: Int[Array, ""]  # k, of the last tile with a round that was answered


def begun(params: Any, every: int) -> Any:
    """The map before the first round."""
    if every == 1:
        return params
    return Tile(params, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32))


def current(maps: Any, t: Int[Array, ""], every: int) -> Any:
    """The params that serve round t."""
    if every == 1:
        return maps
    over = _over(maps, t, every)
    return jax.tree.map(lambda p, c: jnp.where(over, p + c, p), maps.params, maps.change)


def moved(maps: Any, t: Int[Array, ""], every: int, change: Any) -> Any:
    """The map after round t, which asks for ``change``."""
    if every == 1:
        return jax.tree.map(jnp.add, maps, change)
    over = _over(maps, t, every)
    change = jax.tree.map(lambda old, new: jnp.where(over, 0, old) + new, maps.change, change)
    return Tile(current(maps, t, every), change, t // every)


def _over(tile: Tile, t: Int[Array, ""], every: int) -> Bool[Array, ""]:
    return t // every > tile.number
