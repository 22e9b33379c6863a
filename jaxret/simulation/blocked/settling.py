"""The end of a block: ``Theta <- f (Theta - P^T u)``, in the place of Theta.

A product of all rows at once needs room for a second Theta, most of what a run of a large catalogue
takes. Some rows at a time need none, and as the product is bound by what it reads, no more time.
What a query map asks of the old rows, ``W Theta``, is made here as well, before the first of them
settles: XLA would copy them, were it free to choose. Narrow rows (`jaxret.learners.narrow_rows`)
are rounded as they are written.

Letters: I items, d width, B lines of a block.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxret.learners import narrow_rows
from jaxret.learners.narrow_rows import PART, Writing, read, written


def settled(
    theta: Float[Array, "I d"],
    pending: Float[Array, "B I"],
    u: Float[Array, "B d"],
    factor: Float[Array, " I"] | None,
    weights: Float[Array, "B I"] | None = None,
    *,
    writing: Writing | None = None,
    part: int = PART,
) -> tuple[Float[Array, "I d"], Float[Array, "B d"]]:
    """What rows are when a block is over, and what was asked of them when it began.

    Args:
      theta: rows when it began; of narrow ones the bits.
      pending: P, what each line asks of each row.
      u: along which.
      factor: f, what projections have multiplied rows with; None: nothing.
      weights: W, of each row in each line; None: nothing is asked.
      writing: of narrow rows; None: theta is wide.
      part: rows at a time, where there are twice as many or more.

    Returns:
      theta [I, d], of narrow rows the bits; and the sums [B, d], zero where nothing is asked.
    """
    items = len(theta)
    sums = jnp.zeros_like(u) if weights is None else narrow_rows.sums(weights, theta)
    if items < 2 * part:
        moved = read(theta, u.dtype) - pending.T @ u
        moved = moved if factor is None else moved * factor[:, None]
        if writing is not None:
            moved = written(writing, moved, theta, _asked(pending), jnp.arange(items))
        return moved, sums

    def settle(i, carry):
        theta, sums = carry
        first = jnp.minimum(i * part, items - part)
        fresh = first + jnp.arange(part) >= i * part  # the last part overlaps the one before
        own = lax.dynamic_slice_in_dim(theta, first, part)
        asks = lax.dynamic_slice_in_dim(pending, first, part, axis=1)
        moved = read(own, u.dtype) - asks.T @ u
        if factor is not None:
            moved = moved * lax.dynamic_slice_in_dim(factor, first, part)[:, None]
        if writing is not None:
            moved = written(writing, moved, own, _asked(asks), first + jnp.arange(part))
        moved = jnp.where(fresh[:, None], moved, own)
        theta = lax.dynamic_update_slice_in_dim(theta, moved, first, 0)
        return theta, jnp.where(i < 0, 0, sums)  # never 0: rows settle when they have been read

    return lax.fori_loop(0, -(-items // part), settle, (theta, sums))


def _asked(pending: Float[Array, "B n"]) -> Bool[Array, " n"]:
    return (pending != 0).any(axis=0)
