"""Sums, maxima and draws over the catalogue, whether it lies on one device or on many.

The rows of Theta are split over the mesh axis ``item``; queries, keys and everything else are
copied. Each function below takes the local rows ``x [I/n]`` and an axis name, and answers
with a global value; with ``axis=None`` it is the plain operation. Between devices it sends a
few scalars, never rows: `jaxret.online.blocked` is written once on top of them.

A catalogue whose size n does not divide is padded with absent rows (`padded`).
"""

import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int

from jaxret.types import Catalogue

Axis = str | None
#: (regular expression of a path, where such leaves go), first match first
Rules: TypeAlias = Sequence[tuple[str, P]]
_BLOCK = 512  # items a block in `draw`: I / 512 block sums, then 512 entries of one block


def make_mesh(*, devices: Sequence[jax.Device] | None = None, **axes: int) -> Mesh:
    """Arranges devices in axes: ``make_mesh(item=8)``, ``make_mesh(data=4, model=2)``.

    Args:
      devices: defaults to the first of `jax.devices()`, as many as are needed.
      axes: devices along each axis. ``item`` share one catalogue, ``run`` are independent runs
        side by side (both 1 if not said), ``data`` share a batch of training.
    """
    devices = jax.devices() if devices is None else list(devices)
    sizes = {"run": 1, "item": 1} | axes
    needed = math.prod(sizes.values())
    if min(sizes.values()) < 1 or needed > len(devices):
        shape = " x ".join(f"{name}={size}" for name, size in sizes.items())
        raise ValueError(f"a mesh of {shape} needs {needed} devices; {len(devices)} here")
    return Mesh(np.array(devices[:needed]).reshape(tuple(sizes.values())), tuple(sizes))


def padded(catalogue: Catalogue, multiple: int) -> Catalogue:
    """Adds absent rows until the number of items is a multiple of ``multiple``."""
    extra = -catalogue.theta.shape[0] % multiple
    return Catalogue(
        theta=jnp.pad(catalogue.theta, ((0, extra), (0, 0))),
        available=jnp.pad(catalogue.available, (0, extra)),
    )


def place(tree, mesh: Mesh, specs):
    """Puts every leaf where its PartitionSpec says."""
    return jax.tree.map(
        lambda spec, x: jax.device_put(x, NamedSharding(mesh, spec)),
        specs,
        tree,
        is_leaf=lambda x: isinstance(x, P),
    )


def by_path(tree, rules: Rules):
    """A PartitionSpec for every leaf, by the first rule whose expression is found in its path.

    Paths are ``'a/b/c'``, so one rule serves parameters, their gradients and the optimiser's state.
    A leaf that no rule names is copied to every device.
    """

    def spec(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        partition = next((spec for rule, spec in rules if re.search(rule, name)), P())
        if len(partition) > np.ndim(leaf):
            raise ValueError(f"{name} has {np.ndim(leaf)} axes, too few for the rule's {partition}")
        return partition

    return jax.tree.map_with_path(spec, tree)


def sweep(run: Callable, *args, mesh: Mesh | None = None):
    """Maps ``run`` over the leading axis of ``args``: seeds, or a grid of settings.

    On a CPU device one run after another beats vmap (a run's vectors stay in cache); on
    accelerators vmap fills the device.

    Args:
      run: of one element of each of ``args``.
      args: arrays and trees of arrays with the same leading axis n.
      mesh: its devices along the axis ``run`` share the runs, which changes nothing but rounding:
        n is filled up with copies of the last run until they divide it.
    """

    def inside(*args):
        if jax.default_backend() == "cpu":
            return lax.map(lambda a: run(*a), args)
        return jax.vmap(run)(*args)

    if mesh is None or mesh.shape["run"] == 1:
        return inside(*args)
    n = len(jax.tree.leaves(args)[0])
    whole = n + -n % mesh.shape["run"]
    filled = (
        args if whole == n else jax.tree.map(lambda x: x[jnp.arange(whole).clip(max=n - 1)], args)
    )
    shared = jax.shard_map(
        inside, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False
    )(*filled)
    return shared if whole == n else jax.tree.map(lambda x: x[:n], shared)


def run_mesh(runs: int) -> Mesh:
    """All devices side by side along the axis ``run``, but no more than there are runs."""
    return make_mesh(run=min(runs, len(jax.devices())))


def one_device_a_core() -> None:
    """Makes a device of each CPU core, before JAX begins: `run_mesh` puts seeds side by side.

    All cores on one seed split what is too small to split. On 2 cores a round of UltraTool took
    0.66 of the time with two devices (``online/microseconds`` of `experiments.orag`, five seeds,
    with and without ``XLA_FLAGS=--xla_force_host_platform_device_count=1``).
    """
    said = jax.config.values["jax_num_cpu_devices"] > 0
    if said or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with suppress(RuntimeError):  # JAX has begun, and keeps the devices that it has
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


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

    Returns:
      its catalogue position [].
    """
    if axis is None:
        return jnp.argmax(x).astype(jnp.int32)
    here = jnp.argmax(x)
    candidate = item_ids(x.shape[0], axis)[here]
    is_best = x[here] == maximum(x, axis)
    return lax.pmin(jnp.where(is_best, candidate, jnp.iinfo(jnp.int32).max), axis)


def take(x: Float[Array, " I"], index: Int[Array, "*m"], axis: Axis) -> Float[Array, "*m"]:
    """Takes the entries at catalogue positions; negative positions give 0.

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

    Returns:
      entries [k], descending, and their catalogue positions [k].
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
    index = jnp.argmax(cumulative > target)
    weight = weights[index]
    rest = (target - (cumulative[index] - weight)) / jnp.where(weight > 0, weight, 1)
    return index, jnp.clip(rest, 0, below_one)


def one_hot(items: Int[Array, "*m"], like: Float[Array, " I"], axis: Axis) -> Float[Array, " I"]:
    """Counts how often each local item stands in ``items``; negative positions count for none.

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
