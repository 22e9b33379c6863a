"""The end of a block: ``Theta <- f (Theta - P^T u)``, in the place of Theta.

A product of all rows at once needs room for a second Theta, most of what a run of a large catalogue
takes. Some rows at a time need none, and as the product is bound by what it reads, no more time.

Letters: I items, d width, B lines of a block.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

PART = 2048  # rows at a time


def settled(
    theta: Float[Array, "I d"],
    pending: Float[Array, "B I"],
    u: Float[Array, "B d"],
    factor: Float[Array, " I"] | None,
    *,
    part: int = PART,
) -> Float[Array, "I d"]:
    """What rows are when a block is over.

    Args:
      theta: rows when it began.
      pending: P, what each line asks of each row.
      u: along which.
      factor: f, what projections have multiplied rows with; None: nothing.
      part: rows at a time, where there are twice as many or more.

    Returns:
      theta [I, d].
    """
    items = len(theta)
    if items < 2 * part:
        moved = theta - pending.T @ u
        return moved if factor is None else moved * factor[:, None]

    def settle(i, theta):
        first = jnp.minimum(i * part, items - part)
        fresh = first + jnp.arange(part) >= i * part  # the last part overlaps the one before
        own = lax.dynamic_slice_in_dim(theta, first, part)
        moved = own - lax.dynamic_slice_in_dim(pending, first, part, axis=1).T @ u
        if factor is not None:
            moved = moved * lax.dynamic_slice_in_dim(factor, first, part)[:, None]
        moved = jnp.where(fresh[:, None], moved, own)
        return lax.dynamic_update_slice_in_dim(theta, moved, first, 0)

    return lax.fori_loop(0, -(-items // part), settle, theta)
