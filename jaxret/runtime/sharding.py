"""Devices in a mesh, what lies where on it, and runs side by side.

The rows of Theta are split over the mesh axis ``item``; queries, keys and everything else are
copied. A catalogue whose size n does not divide is padded with absent rows (`padded`).
`jaxret.runtime.over_items` sums and draws over a catalogue that is split so.
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

#: (regular expression of a path, where such leaves go), first match first
Rules: TypeAlias = Sequence[tuple[str, P]]


def make_mesh(*, devices: Sequence[jax.Device] | None = None, **axes: int) -> Mesh:
    """Arranges devices in axes: ``make_mesh(item=8)``, ``make_mesh(data=4, model=2)``.

    Args:
      devices: defaults to the first of each process, as many as are needed.
      **axes: devices along each axis. ``item`` share one catalogue, ``run`` are independent runs
        side by side (both 1 if not said), ``data`` share a batch of training.

    Returns:
      a mesh with the axes ``run`` and ``item`` and all others that are named.

    Raises:
      ValueError: where an axis has no device, there are fewer devices than the axes need, or
        several processes cannot give equally many.
    """
    sizes = {"run": 1, "item": 1} | axes
    needed = math.prod(sizes.values())
    devices = _of_all_processes(needed) if devices is None else list(devices)
    if min(sizes.values()) < 1 or needed > len(devices):
        shape = " x ".join(f"{name}={size}" for name, size in sizes.items())
        raise ValueError(f"a mesh of {shape} needs {needed} devices; {len(devices)} here")
    places = np.array(devices[:needed]).reshape(tuple(sizes.values()))
    # XLA says what lies where, but for what `shard_map` says: no default of jax decides that.
    return Mesh(places, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


def _of_all_processes(needed: int) -> list[jax.Device]:
    """The first devices; of several processes, each gives equally many."""
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
    """Adds absent rows until the number of items is a multiple of ``multiple``."""
    extra = -catalogue.theta.shape[0] % multiple
    return Catalogue(
        theta=jnp.pad(catalogue.theta, ((0, extra), (0, 0))),
        available=jnp.pad(catalogue.available, (0, extra)),
    )


def split_rows(
    theta: Float[np.ndarray, "I d"], available: Bool[np.ndarray, " I"], mesh: Mesh
) -> Catalogue:
    """Splits a catalogue over the axis ``item``; each device is given its own rows alone.

    Args:
      theta: item embeddings [I, d].
      available: [I], true where an item can be chosen.
      mesh: devices, with an axis ``item``.

    Returns:
      the catalogue, filled up with absent rows until the axis divides their number.
    """
    extra = -len(theta) % mesh.shape["item"]
    rows = NamedSharding(mesh, P("item"))
    return Catalogue(
        theta=distributed.put(np.pad(theta, ((0, extra), (0, 0))), rows),
        available=distributed.put(np.pad(available, (0, extra)), rows),
    )


def place(tree, mesh: Mesh, specs):
    """Puts every leaf where its PartitionSpec says.

    Args:
      tree: arrays.
      mesh: the devices that they go to.
      specs: a PartitionSpec for each leaf, in a tree of the same structure.

    Returns:
      the tree, its leaves on the mesh.
    """
    return jax.tree.map(
        lambda spec, x: distributed.put(x, NamedSharding(mesh, spec)),
        specs,
        tree,
        is_leaf=lambda x: isinstance(x, P),
    )


def by_path(tree, rules: Rules):
    """Finds a PartitionSpec for every leaf, by the first rule whose expression is in its path.

    Paths are ``'a/b/c'``, so one rule serves parameters, their gradients and the optimiser's state.

    Args:
      tree: arrays or their shapes.
      rules: pairs of a regular expression and a PartitionSpec. A leaf that no rule names is copied
        to every device.

    Returns:
      the PartitionSpecs, in a tree of the same structure.

    Raises:
      ValueError: where a rule splits more axes than a leaf has; names the leaf.
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
    """All devices side by side along the axis ``run``, but no more than there are runs.

    Of several processes, each takes part with as many devices as any other.
    """
    processes = jax.process_count()
    return make_mesh(run=processes * min(-(-runs // processes), jax.local_device_count()))


def one_device_a_core() -> None:
    """Makes a device of each CPU core, before JAX begins: `run_mesh` puts seeds side by side.

    All cores on one seed split what is too small to split. On 2 cores a round of UltraTool took
    0.66 of the time with two devices (``online/microseconds`` of `experiments.orag`, five seeds,
    with and without ``XLA_FLAGS=--xla_force_host_platform_device_count=1``).
    """
    said = jax.config.values["jax_num_cpu_devices"] > 0
    alone = not jax.distributed.is_initialized()  # several have a core each
    if said or not alone or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    with suppress(RuntimeError):  # JAX has begun, and keeps the devices that it has
        jax.config.update("jax_num_cpu_devices", cores())


def cores() -> int:
    """How many cores are this process's own, of those that the machine has.

    SLURM and `taskset` say it by the affinity, and joblib, which starts many processes on one
    machine, by OMP_NUM_THREADS.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    own = len(affinity(0)) if affinity else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(own, int(said)) if said.isdigit() and int(said) else own
