"""Theta in bfloat16: half of its memory, and everything else as precise as it was.

    rows          8 bits of each number, between two writes; all that is computed is float32
    u Theta^T     rows become float32 some at a time, and sums are made of those
    Theta <- ..   float32 rows are rounded where they are written, once a round or once a block

A number of 8 bits stands for all within 1/512 of it, so that the nearest one swallows every smaller
step: a row that is pulled a little in each round stays where it is. Rounded stochastically, up as
often as it lies near the upper neighbour, a number is right on average, whatever the steps. The
random bits follow from the round, the row's place in the catalogue and the column alone: a run that
is cut goes on bit for bit, and a device rounds its own rows as one device would have.

Letters: I items, d width, n rows or lines.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt16, UInt32

from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.types import State

NARROW = jnp.bfloat16
PART = 2048  # rows at a time
Rounding: TypeAlias = Literal["stochastic", "nearest"]
_SEED = 16  # of the random bits, the same in every run


def wide(theta: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Rows as what is computed has them: float32 at least.

    Returns:
      [..., d], the same array where it is wide.
    """
    return theta.astype(jnp.promote_types(theta.dtype, jnp.float32))


class Writing(NamedTuple):
    """How narrow rows are written, this time."""

    rounding: Rounding
    ids: Int[Array, " I"]  # the places of this device's rows in the catalogue
    number: Int[Array, ""]  # another one each time


def writing(rounding: Rounding | None, state: State, axis: Axis, *, again: bool = False) -> Any:
    """That of a round of the scan, or of a block, which begins in this state.

    Args:
      rounding: of the rule; None: its rows are wide.
      state: whose rows and round they are.
      axis: the mesh axis of the items, or None.
      again: whether it is the second of a round, which learns from past ones.
    """
    if rounding is None:
        return None
    return Writing(rounding, over_items.item_ids(len(state.theta), axis), 2 * state.t + again)


def bits(theta: Shaped[Array, "*S I d"]) -> Shaped[Array, "*S I d"]:
    """What narrow rows are made of, as whole numbers; wide rows are left as they are.

    The blocked form carries these: to cut or to join bfloat16, XLA on CPU makes float32 of all.

    Returns:
      [.., I, d].
    """
    return lax.bitcast_convert_type(theta, jnp.uint16) if theta.dtype == NARROW else theta


def packed(state: State) -> State:
    """A state with the `bits` of its rows; it serves whoever made it as well."""
    return state._replace(theta=bits(state.theta))


def unpacked(state: State) -> State:
    """The state again: of one run, or of many; on CPU without a copy, where it is on one device."""
    rows = state.theta
    if rows.dtype != jnp.uint16:
        return state
    if isinstance(rows, Tracer):
        return state._replace(theta=lax.bitcast_convert_type(rows, NARROW))
    if [device.platform for device in rows.sharding.device_set] == ["cpu"]:
        return state._replace(theta=jax.device_put(np.asarray(rows).view(NARROW)))
    return state._replace(theta=jax.jit(partial(lax.bitcast_convert_type, new_dtype=NARROW))(rows))


def read(rows: Shaped[Array, "n d"], dtype: DTypeLike) -> Float[Array, "n d"]:
    """The numbers that `bits` stand for; wide rows are left as they are.

    Returns:
      [n, d].
    """
    if rows.dtype != jnp.uint16:
        return rows
    return lax.bitcast_convert_type(rows.astype(jnp.uint32) << 16, jnp.float32).astype(dtype)


def products(
    u: Float[Array, "n d"],
    rows: Shaped[Array, "I d"],
    *,
    precision: lax.Precision | None = None,
    part: int = PART,
) -> Float[Array, "n I"]:
    """``u Theta^T`` in the precision of u, without a wide copy of Theta.

    Args:
      u: lines.
      rows: of Theta; of narrow ones the `bits`.
      precision: of the product.
      part: rows at a time, where they are narrow.

    Returns:
      [n, I].
    """

    def put(scores, first, fresh, own):
        own = jnp.matmul(u, own.T, precision=precision)
        return lax.dynamic_update_slice_in_dim(scores, own, first, 1)

    if rows.dtype != jnp.uint16:
        return jnp.matmul(u, rows.T, precision=precision)
    return _in_parts(put, jnp.zeros((len(u), len(rows)), u.dtype), rows, part)


def sums(
    weights: Float[Array, "n I"], rows: Shaped[Array, "I d"], *, part: int = PART
) -> Float[Array, "n d"]:
    """``weights Theta`` in the precision of the weights, without a wide copy of Theta.

    Args:
      weights: of each row in each line.
      rows: as in `products`.
      part: as there.

    Returns:
      [n, d].
    """

    def add(total, first, fresh, own):
        weight = lax.dynamic_slice_in_dim(weights, first, len(own), axis=1)
        return total + jnp.where(fresh, weight, 0) @ own

    if rows.dtype != jnp.uint16:
        return weights @ rows
    return _in_parts(add, jnp.zeros((len(weights), rows.shape[1]), weights.dtype), rows, part)


def squared_norms(
    rows: Shaped[Array, "I d"], dtype: DTypeLike, *, part: int = PART
) -> Float[Array, " I"]:
    """``||theta_i||^2`` of every row; arguments as in `products`.

    Returns:
      [I], of this type where rows are narrow.
    """

    def put(norms, first, fresh, own):
        return lax.dynamic_update_slice_in_dim(norms, jnp.sum(own**2, axis=1), first, 0)

    if rows.dtype != jnp.uint16:
        return jnp.sum(rows**2, axis=1)
    return _in_parts(put, jnp.zeros(len(rows), dtype), rows, part)


def _in_parts(step: Callable, start: Array, rows: UInt16[Array, "I d"], part: int) -> Array:
    """What becomes of it by some rows at a time: ``step(so far, first row, which are new, rows)``.

    The last part overlaps the one before.
    """
    items, part = len(rows), min(part, len(rows))

    def one(i, found):
        first = jnp.minimum(i * part, items - part)
        own = read(lax.dynamic_slice_in_dim(rows, first, part), start.dtype)
        return step(found, first, first + jnp.arange(part) >= i * part, own)

    return lax.fori_loop(0, -(-items // part), one, start)


def written(
    writing: Writing,
    moved: Float[Array, "n d"],
    own: UInt16[Array, "n d"],
    asked: Bool[Array, " n"],
    places: Int[Array, " n"],
) -> UInt16[Array, "n d"]:
    """Rows as they are kept.

    Args:
      writing: how.
      moved: rows as they came out.
      own: the bits of those that were kept before.
      asked: which of them anything was asked of; the others stay bit for bit, since a projection
        would take a rounded row back to its length again and again.
      places: of the rows, among those of this device.

    Returns:
      their bits [n, d].
    """
    numbers = lax.bitcast_convert_type(moved.astype(jnp.float32), jnp.uint32)
    if writing.rounding == "nearest":  # of two equally near ones the even one
        up = 0x7FFF + ((numbers >> 16) & 1)
    else:
        up = _sixteen_bits(writing.number, writing.ids[places], moved.shape[1])
    return jnp.where(asked[:, None], ((numbers + up) >> 16).astype(jnp.uint16), own)


def _sixteen_bits(
    number: Int[Array, ""], ids: Int[Array, " n"], width: int
) -> UInt32[Array, "n d"]:
    """Random numbers below 2^16. (`jax.random` takes five times as long as a block's product.)"""
    key = jax.random.bits(jax.random.fold_in(jax.random.key(_SEED), number), dtype=jnp.uint32)
    rows = _mixed(ids.astype(jnp.uint32) ^ key)
    return _mixed(rows[:, None] + jnp.arange(width, dtype=jnp.uint32)[None]) >> 16


def _mixed(bits: UInt32[Array, "*n"]) -> UInt32[Array, "*n"]:
    """Each bit of the answer hangs on every bit (the end of MurmurHash3, by Appleby)."""
    bits = (bits ^ (bits >> 16)) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
