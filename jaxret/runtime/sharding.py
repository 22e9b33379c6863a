"""Meshes of devices, the sharding of arrays, and runs side by side.

The rows of Theta are split over the mesh axis ``item``; queries, keys and everything else are
replicated. A catalogue whose size is not a multiple of n is padded with absent rows (`padded`).
`jaxret.runtime.over_items` sums and draws over a split catalogue.
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
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, Float

from jaxret.runtime import distributed
from jaxret.types import Catalogue

#: Pairs of a regular expression of paths and a PartitionSpec; the first match counts.
Rules: TypeAlias = Sequence[tuple[str, P]]


def make_mesh(*, devices: Sequence[jax.Device] | None = None, **axes: int) -> Mesh:
    """Arrange devices in axes: ``make_mesh(item=8)``, ``make_mesh(data=4, model=2)``.

    Args:
      devices: devices to use; None: the first devices of each process, as many as needed.
      **axes: number of devices along each axis: ``item`` splits one catalogue, ``run`` has
        independent runs side by side (both default to 1), ``data`` splits a training batch.

    Returns:
      A mesh with the axes ``run`` and ``item`` and all others that are named.

    Raises:
      ValueError: if an axis has no device, there are fewer devices than needed, or several
        processes cannot provide equally many.
    """
    sizes = {"run": 1, "item": 1} | axes
    needed = math.prod(sizes.values())
    devices = _of_all_processes(needed) if devices is None else list(devices)
    if min(sizes.values()) < 1 or needed > len(devices):
        shape = " x ".join(f"{name}={size}" for name, size in sizes.items())
        raise ValueError(f"a mesh of {shape} needs {needed} devices; {len(devices)} here")
    grid = np.array(devices[:needed]).reshape(tuple(sizes.values()))
    # Let XLA choose shardings outside `shard_map`, regardless of jax's default axis types.
    return Mesh(grid, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def _of_all_processes(needed: int) -> list[jax.Device]:
    """Return the first devices, equally many of each process."""
    processes = jax.process_count()
    if needed % processes:
        raise ValueError(
            f"a mesh of {needed} devices leaves some of the {processes} processes out: "
            f"give a multiple of {processes}"
        )
    if needed > jax.device_count():
        return jax.devices()
    each = needed // processes
    by_process = [[d for d in jax.devices() if d.process_index == i] for i in range(processes)]
    return [device for own in by_process for device in own[:each]]


def padded(catalogue: Catalogue, multiple: int) -> Catalogue:
    """Add absent rows until the number of items is a multiple of ``multiple``."""
    extra = -catalogue.theta.shape[0] % multiple
    return Catalogue(
        theta=jnp.pad(catalogue.theta, ((0, extra), (0, 0))),
        available=jnp.pad(catalogue.available, (0, extra)),
    )


def split_rows(
    theta: Float[np.ndarray, "I d"], available: Bool[np.ndarray, " I"], mesh: Mesh
) -> Catalogue:
    """Split a catalogue over the axis ``item``; each device receives only its own rows.

    Args:
      theta: item embeddings [I, d].
      available: mask of the available items [I].
      mesh: mesh with an axis ``item``.

    Returns:
      The catalogue, padded with absent rows to a multiple of the axis.
    """
    extra = -len(theta) % mesh.shape["item"]
    rows = NamedSharding(mesh, P("item"))
    return Catalogue(
        theta=distributed.put(np.pad(theta, ((0, extra), (0, 0))), rows),
        available=distributed.put(np.pad(available, (0, extra)), rows),
    )


def place(tree, mesh: Mesh, specs):
    """Shard every leaf by its PartitionSpec.

    Args:
      tree: tree of arrays.
      mesh: mesh of the devices.
      specs: a PartitionSpec for each leaf, in a tree of the same structure.
    """
    return jax.tree.map(
        lambda spec, x: distributed.put(x, NamedSharding(mesh, spec)),
        specs,
        tree,
        is_leaf=lambda x: isinstance(x, P),
    )


def by_path(tree, rules: Rules):
    """Find the PartitionSpec of every leaf, by the first rule that matches its path.

    Paths are ``'a/b/c'``, so one rule covers parameters, gradients and optimiser states.

    Args:
      tree: arrays or their shapes.
      rules: pairs of a regular expression and a PartitionSpec; all other leaves are replicated.

    Returns:
      The PartitionSpecs, in a tree of the same structure.

    Raises:
      ValueError: if a rule splits more axes than a leaf has.
    """

    def spec(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        partition = next((spec for rule, spec in rules if re.search(rule, name)), P())
        if len(partition) > np.ndim(leaf):
            raise ValueError(f"{name} has {np.ndim(leaf)} axes, too few for the rule's {partition}")
        return partition

    return jax.tree.map_with_path(spec, tree)


def sweep(run: Callable, *args, mesh: Mesh | None = None):
    """Map ``run`` over the leading axis of ``args``, such as seeds or a grid of settings.

    On a CPU device a loop over runs is faster than vmap, since the vectors of one run fit in the
    cache; on accelerators vmap uses the device better.

    Args:
      run: function of one element of each of ``args``.
      args: arrays and trees of arrays with the same leading axis n.
      mesh: mesh whose axis ``run`` splits the runs, with the same results up to rounding; n is
        padded with copies of the last run.
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
    """Make a mesh with the axis ``run`` of all devices, but at most one per run.

    Several processes contribute equally many devices.
    """
    processes = jax.process_count()
    return make_mesh(run=processes * min(-(-runs // processes), jax.local_device_count()))


def one_device_a_core() -> None:
    """Make each CPU core a device, so that `run_mesh` runs seeds side by side.

    Call this before JAX is initialised. The arrays of one seed are too small to split over cores:
    on 2 cores a round of UltraTool took 0.66 of the time with two devices
    (``online/microseconds`` of `experiments.orag`, five seeds, with and without
    ``XLA_FLAGS=--xla_force_host_platform_device_count=1``).
    """
    configured = jax.config.values["jax_num_cpu_devices"] > 0
    alone = not jax.distributed.is_initialized()  # several processes have one core each
    if configured or not alone or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with suppress(RuntimeError):  # JAX is initialised already, and its devices are fixed
        jax.config.update("jax_num_cpu_devices", cores())


def cores() -> int:
    """Return the number of cores that this process may use.

    SLURM and `taskset` limit it by the affinity, joblib, which starts many processes on one
    machine, by OMP_NUM_THREADS.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # only on Linux
    own = len(affinity(0)) if affinity else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(own, int(threads)) if threads.isdigit() and int(threads) else own
