"""Updates of a query map at the end of a block (`jaxret.simulation.blocked.rank_one`).

Letters: I items, d width, B rounds per block, m lines per round, n lines.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.rank_one import Rule
from jaxret.runtime.over_items import Axis


class MapSteps(NamedTuple):
    """The factors from which a query map is updated at the end of a block.

    Attributes:
      f_e: the rows' factors when the line's round began, times e before a preconditioner [Bm, I].
      moves: whether the line counts [Bm].
    """

    f_e: Float[Array, "Bm I"]
    moves: Bool[Array, " Bm"]


def nothing(rule: Rule, scores: Float[Array, "n I"]) -> Any:
    """Return empty `MapSteps` for n lines; () without a map."""
    if rule.query_map is None:
        return ()
    return MapSteps(jnp.zeros_like(scores), jnp.zeros(len(scores), bool))


def add(
    map_steps: Any, f_e: Float[Array, "n I"], moves: Bool[Array, ""], line: Int[Array, ""]
) -> Any:
    """Write n lines into the `MapSteps` of a block or tile.

    Args:
      map_steps: steps of the lines so far; () without a map.
      f_e: factors of the n lines [n, I].
      moves: whether the lines count [].
      line: position of the first line [].
    """
    if not map_steps:
        return ()
    return MapSteps(
        lax.dynamic_update_slice_in_dim(map_steps.f_e, f_e, line, 0),
        lax.dynamic_update_slice_in_dim(map_steps.moves, jnp.full(len(f_e), moves), line, 0),
    )


def pulls(
    sums: Float[Array, "Bm d"],
    u: Float[Array, "Bm d"],
    pending: Float[Array, "Bm I"],
    f_e: Float[Array, "Bm I"],
    m: int,
    axis: Axis,
) -> Float[Array, "Bm d"]:
    """Compute ``Theta_s^T e_s`` of every line from ``Theta^T f_s e_s`` and the pending updates.

    Args:
      sums: ``Theta^T f_s e_s`` [Bm, d].
      u: direction of each line [Bm, d].
      pending: P [Bm, I].
      f_e: f_s e_s [Bm, I].
      m: lines per round.
      axis: the mesh axis of the items, or None.

    Returns:
      [Bm, d], the same on all devices.
    """
    line = np.arange(len(u))
    phase = 2 * (line // m) + (line % m > 0)
    earlier = phase[None, :] < phase[:, None]
    local = sums - jnp.where(earlier, f_e @ pending.T, 0.0) @ u
    return local if axis is None else lax.psum(local, axis)
