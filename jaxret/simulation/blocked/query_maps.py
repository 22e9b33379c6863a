"""What a query map learns from a block of rounds: the part of `jaxret.simulation.blocked.rank_one`
that it needs.

Letters: I items, d width, B rounds a block, m lines a round, n lines.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.learners.learner import Rule
from jaxret.runtime.over_items import Axis


class Asks(NamedTuple):
    """What is asked of a map by every line so far."""

    f_e: Float[Array, "Bm I"]  # factors when its round began, times e before a preconditioner
    moves: Bool[Array, " Bm"]


def nothing(rule: Rule, scores: Float[Array, "n I"]) -> Any:
    """Of n lines, before they are known; () without a map."""
    if rule.query_map is None:
        return ()
    return Asks(jnp.zeros_like(scores), jnp.zeros(len(scores), bool))


def asked(asks: Any, f_e: Float[Array, "n I"], moves: Bool[Array, ""], line: Int[Array, ""]) -> Any:
    """With n lines more, from ``line`` on, that move or do not."""
    if not asks:
        return ()
    return Asks(
        lax.dynamic_update_slice_in_dim(asks.f_e, f_e, line, 0),
        lax.dynamic_update_slice_in_dim(asks.moves, jnp.full(len(f_e), moves), line, 0),
    )


def pulls(
    sums: Float[Array, "Bm d"],
    u: Float[Array, "Bm d"],
    pending: Float[Array, "Bm I"],
    f_e: Float[Array, "Bm I"],
    m: int,
    axis: Axis,
) -> Float[Array, "Bm d"]:
    """``Theta_s^T e_s`` of every line, from ``Theta^T f_s e_s`` and what was pending in each.

    Returns:
      [Bm, d], the same on all devices.
    """
    line = np.arange(len(u))
    phase = 2 * (line // m) + (line % m > 0)
    earlier = phase[None, :] < phase[:, None]
    local = sums - jnp.where(earlier, f_e @ pending.T, 0.0) @ u
    return local if axis is None else lax.psum(local, axis)
