"""Sums, maxima and draws over a catalogue on one device or many.

Each function takes the local entries ``x [I/n]`` and the name of the mesh axis that splits them
(`jaxret.runtime.sharding`), and returns a global value; with ``axis=None`` it is the plain
operation. Devices exchange a few scalars, never rows.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

Axis = str | None
_BLOCK = 512  # items per block in `draw`: I / 512 block sums, then 512 entries of one block


def item_ids(n_local: int, axis: Axis) -> Int[Array, " I"]:
    """Return the catalogue positions of this device's rows.

    Returns:
      Positions [I/n].
    """
    ids = jnp.arange(n_local, dtype=jnp.int32)
    return ids if axis is None else ids + n_local * lax.axis_index(axis)


def total(x: Float[Array, " I"], axis: Axis) -> Float[Array, ""]:
    """Sum over all items.

    Returns:
      the sum [].
    """
    local = x.sum()
    return local if axis is None else lax.psum(local, axis)


def maximum(x: Float[Array, " I"], axis: Axis) -> Float[Array, ""]:
    """Find the largest entry over all items.

    Returns:
      the entry [].
    """
    local = x.max()
    return local if axis is None else lax.pmax(local, axis)


def argmax(x: Float[Array, " I"], axis: Axis) -> Int[Array, ""]:
    """Find the position of the largest entry over all items; ties go to the first.

    Returns:
      The catalogue position [].
    """
    local = lax.platform_dependent(x, cpu=_argmax_on_cpu, default=_argmax)
    if axis is None:
        return local
    # The maximum of a device is one number, which is compared and sent.
    holds_it = x.max() == maximum(x, axis)
    position = item_ids(x.shape[0], axis)[local]
    return lax.pmin(jnp.where(holds_it, position, jnp.iinfo(jnp.int32).max), axis)


def _argmax(x: Float[Array, " I"]) -> Int[Array, ""]:
    """Compare entries in one reduction.

    A second one could find no entry equal to the maximum: on a GPU XLA computes ``x`` for each
    reduction again, and may round it differently.
    """
    return lax.argmax(x, 0, jnp.int32)


def _argmax_on_cpu(x: Float[Array, " I"]) -> Int[Array, ""]:
    """Find the maximum, then its position: several times as fast on CPU as one reduction."""
    return first(x == x.max(), None)


def first(mask: Bool[Array, " I"], axis: Axis) -> Int[Array, ""]:
    """Find the first item for which the mask is true.

    Returns:
      The catalogue position []; 0 if the mask is false everywhere.
    """
    none = jnp.iinfo(jnp.int32).max
    local = jnp.where(mask, item_ids(mask.shape[0], axis), none).min()
    found = local if axis is None else lax.pmin(local, axis)
    return jnp.where(found < none, found, 0)


def take(x: Float[Array, " I"], index: Int[Array, "*m"], axis: Axis) -> Float[Array, "*m"]:
    """Take the entries at catalogue positions.

    Args:
      x: this device's entries [I/n].
      index: positions in the catalogue, of any shape [...]; negative ones give 0.
      axis: mesh axis that splits the items; None for a single device.

    Returns:
      an entry for each position, in the shape of ``index`` [...].
    """
    ids = item_ids(x.shape[0], axis)
    local = index - ids[0]
    owned = (local >= 0) & (local < x.shape[0]) & (index >= 0)
    local_entries = jnp.where(owned, x[jnp.where(owned, local, 0)], 0)
    return local_entries if axis is None else lax.psum(local_entries, axis)


def top_k(x: Float[Array, " I"], k: int, axis: Axis) -> tuple[Float[Array, " k"], Int[Array, " k"]]:
    """Find the k largest entries over all items; k entries per device are exchanged.

    Args:
      x: this device's entries [I/n].
      k: number of entries, at most I.
      axis: mesh axis that splits the items; None for a single device.

    Returns:
      Entries [k], descending, and their catalogue positions [k].

    Raises:
      ValueError: if k exceeds the number of items.
    """
    n_all = x.shape[0] if axis is None else x.shape[0] * lax.axis_size(axis)
    if k > n_all:
        raise ValueError(f"k={k} items are asked of a catalogue of {n_all}")
    values, rows = lax.top_k(x, min(k, x.shape[0]))
    ids = item_ids(x.shape[0], axis)[rows]
    if axis is None:
        return values, ids
    values, best = lax.top_k(lax.all_gather(values, axis, tiled=True), k)
    return values, lax.all_gather(ids, axis, tiled=True)[best]


def draw(weights: Float[Array, " I"], uniform: Float[Array, ""], axis: Axis) -> Int[Array, ""]:
    """Draw one item with probability proportional to its weight, from one uniform number.

    Invert the cumulative sum, by device, then by block, then within a block. Items of weight 0 are
    never drawn.

    Args:
      weights: weights of this device's items [I/n], not negative; their sum need not be 1.
      uniform: a number [] in [0, 1), the same on all devices.
      axis: mesh axis that splits the items; None for a single device.

    Returns:
      The catalogue position [].
    """
    if axis is None:
        return _draw_local(weights, uniform)
    sums = lax.all_gather(weights.sum(), axis)
    owner, rest = _invert(sums, uniform)
    local = _draw_local(weights, rest)
    owned = owner == lax.axis_index(axis)
    item = jnp.where(owned, item_ids(weights.shape[0], axis)[local], 0)
    return lax.psum(item, axis)


def _draw_local(weights: Float[Array, " I"], uniform: Float[Array, ""]) -> Int[Array, ""]:
    if weights.shape[0] <= _BLOCK:
        return _invert(weights, uniform)[0].astype(jnp.int32)
    blocks = jnp.pad(weights, (0, -weights.shape[0] % _BLOCK)).reshape(-1, _BLOCK)
    block, rest = _invert(blocks.sum(axis=1), uniform)
    inside, _ = _invert(blocks[block], rest)
    return (block * _BLOCK + inside).astype(jnp.int32)


def _invert(
    weights: Float[Array, " m"], uniform: Float[Array, ""]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the entry that ``uniform`` selects, and the relative position in it, in [0, 1)."""
    # Entries of weight 0 are excluded, so that rounding of the sums cannot select one.
    cumulative = jnp.where(weights > 0, jnp.cumsum(weights), 0)
    below_one = 1 - jnp.finfo(weights.dtype).eps
    target = jnp.minimum(uniform, below_one) * cumulative.max()
    index = first(cumulative > target, None)
    weight = weights[index]
    rest = (target - (cumulative[index] - weight)) / jnp.where(weight > 0, weight, 1)
    return index, jnp.clip(rest, 0, below_one)


def one_hot(items: Int[Array, "*m"], like: Float[Array, " I"], axis: Axis) -> Float[Array, " I"]:
    """Count the occurrences of each local item in ``items``.

    Args:
      items: one catalogue position [] or several [m]; negative positions are ignored.
      like: array [I/n] over this device's items, with the length and dtype of the counts.
      axis: mesh axis that splits the items; None for a single device.

    Returns:
      counts [I/n].
    """
    ids = item_ids(like.shape[0], axis)
    if items.ndim == 0:
        return (ids == items).astype(like.dtype)
    return (ids[:, None] == items[None, :]).sum(axis=1).astype(like.dtype)


def masked(logits: Float[Array, " I"], available: Bool[Array, " I"]) -> Float[Array, " I"]:
    """Replace the logits of absent items by minus infinity.

    Returns:
      logits [I/n].
    """
    return jnp.where(available, logits, -jnp.inf)


def softmax(logits: Float[Array, " I"], axis: Axis) -> Float[Array, " I"]:
    """Normalise over all items; absent items (minus infinity) get 0.

    Returns:
      this device's probabilities [I/n].
    """
    weights = jnp.exp(logits - maximum(logits, axis))
    return weights / total(weights, axis)
