"""Sums, maxima and draws over the catalogue, whether it lies on one device or on many.

Each function takes the local rows ``x [I/n]`` and the name of the mesh axis that splits them
(`jaxret.runtime.sharding`), and answers with a global value; with ``axis=None`` it is the plain
operation. Between devices it sends a few scalars, never rows: `jaxret.simulation.blocked.simulate`
is written once on top of them.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

Axis = str | None
_BLOCK = 512  # items a block in `draw`: I / 512 block sums, then 512 entries of one block


def item_ids(n_local: int, axis: Axis) -> Int[Array, " I"]:
    """Numbers this device's rows by their place in the catalogue.

    Returns:
      positions [I/n].
    """
    ids = jnp.arange(n_local, dtype=jnp.int32)
    return ids if axis is None else ids + n_local * lax.axis_index(axis)


def total(x: Float[Array, " I"], axis: Axis) -> Float[Array, ""]:
    """Sums over all items.

    Returns:
      the sum [].
    """
    local = x.sum()
    return local if axis is None else lax.psum(local, axis)


def maximum(x: Float[Array, " I"], axis: Axis) -> Float[Array, ""]:
    """Finds the largest entry over all items.

    Returns:
      the entry [].
    """
    local = x.max()
    return local if axis is None else lax.pmax(local, axis)


def argmax(x: Float[Array, " I"], axis: Axis) -> Int[Array, ""]:
    """Finds the largest entry over all items; of equals the first.

    Two plain reductions: on CPU XLA makes one slow loop of `jnp.argmax`, several times their time.

    Returns:
      its catalogue position [].
    """
    return first(x == maximum(x, axis), axis)


def first(mask: Bool[Array, " I"], axis: Axis) -> Int[Array, ""]:
    """Finds the first item of which something is true.

    Returns:
      its catalogue position []; 0 where it is true of none.
    """
    none = jnp.iinfo(jnp.int32).max
    local = jnp.where(mask, item_ids(mask.shape[0], axis), none).min()
    found = local if axis is None else lax.pmin(local, axis)
    return jnp.where(found < none, found, 0)


def take(x: Float[Array, " I"], index: Int[Array, "*m"], axis: Axis) -> Float[Array, "*m"]:
    """Takes the entries at catalogue positions.

    Args:
      x: this device's entries [I/n].
      index: positions in the catalogue, of any shape [...]; negative ones give 0.
      axis: the mesh axis that splits the items; None where one device has all.

    Returns:
      an entry for each position, in the shape of ``index`` [...].
    """
    ids = item_ids(x.shape[0], axis)
    local = index - ids[0]
    mine = (local >= 0) & (local < x.shape[0]) & (index >= 0)
    local_entries = jnp.where(mine, x[jnp.where(mine, local, 0)], 0)
    return local_entries if axis is None else lax.psum(local_entries, axis)


def top_k(x: Float[Array, " I"], k: int, axis: Axis) -> tuple[Float[Array, " k"], Int[Array, " k"]]:
    """Finds the k largest entries over all items; k entries a device are exchanged.

    Args:
      x: this device's entries [I/n].
      k: how many, at most I.
      axis: the mesh axis that splits the items; None where one device has all.

    Returns:
      entries [k], descending, and their catalogue positions [k].

    Raises:
      ValueError: where k exceeds the number of items.
    """
    n_all = x.shape[0] if axis is None else x.shape[0] * lax.axis_size(axis)
    if k > n_all:
        raise ValueError(f"k={k} items are asked of a catalogue of {n_all}")
    values, here = lax.top_k(x, min(k, x.shape[0]))
    ids = item_ids(x.shape[0], axis)[here]
    if axis is None:
        return values, ids
    values, best = lax.top_k(lax.all_gather(values, axis, tiled=True), k)
    return values, lax.all_gather(ids, axis, tiled=True)[best]


def draw(weights: Float[Array, " I"], uniform: Float[Array, ""], axis: Axis) -> Int[Array, ""]:
    """Draws one item with probability proportional to its weight, from one uniform number.

    Inverts the cumulative sum, by device, then by block, then inside one block. Items of
    weight 0 are never drawn.

    Args:
      weights: of this device's items [I/n], not negative; their sum need not be 1.
      uniform: a number [] in [0, 1), the same on all devices.
      axis: the mesh axis that splits the items; None where one device has all.

    Returns:
      its catalogue position [].
    """
    if axis is None:
        return _draw_local(weights, uniform)
    sums = lax.all_gather(weights.sum(), axis)
    owner, rest = _invert(sums, uniform)
    local = _draw_local(weights, rest)
    mine = owner == lax.axis_index(axis)
    item = jnp.where(mine, item_ids(weights.shape[0], axis)[local], 0)
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
    """The entry that ``uniform`` falls on, and where in that entry, again in [0, 1)."""
    # Entries of weight 0 are left out, so that no rounding of the sums can land on one.
    cumulative = jnp.where(weights > 0, jnp.cumsum(weights), 0)
    below_one = 1 - jnp.finfo(weights.dtype).eps
    target = jnp.minimum(uniform, below_one) * cumulative.max()
    index = first(cumulative > target, None)
    weight = weights[index]
    rest = (target - (cumulative[index] - weight)) / jnp.where(weight > 0, weight, 1)
    return index, jnp.clip(rest, 0, below_one)


def one_hot(items: Int[Array, "*m"], like: Float[Array, " I"], axis: Axis) -> Float[Array, " I"]:
    """Counts how often each local item stands in ``items``.

    Args:
      items: one position in the catalogue [] or several [m]; negative ones count for none.
      like: an array [I/n] over this device's items, whose length and dtype the counts take.
      axis: the mesh axis that splits the items; None where one device has all.

    Returns:
      counts [I/n].
    """
    ids = item_ids(like.shape[0], axis)
    if items.ndim == 0:
        return (ids == items).astype(like.dtype)
    return (ids[:, None] == items[None, :]).sum(axis=1).astype(like.dtype)


def masked(logits: Float[Array, " I"], available: Bool[Array, " I"]) -> Float[Array, " I"]:
    """Puts minus infinity where an item is absent.

    Returns:
      logits [I/n].
    """
    return jnp.where(available, logits, -jnp.inf)


def softmax(logits: Float[Array, " I"], axis: Axis) -> Float[Array, " I"]:
    """Normalises over all items; absent items (minus infinity) get 0.

    Returns:
      this device's probabilities [I/n].
    """
    weights = jnp.exp(logits - maximum(logits, axis))
    return weights / total(weights, axis)
