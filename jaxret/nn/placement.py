"""Shardings and memory of a large network's parameters, before they are read.

    shapes = backbone.shapes(dtype="bfloat16", mesh=mesh)
    print(memory_report(shapes))

Parameters that are not read yet are ``jax.ShapeDtypeStruct`` with dtype and sharding, by which
`checkpoints.convert` places each tensor.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from jaxret.runtime.sharding import Rules, by_path
from jaxret.types import Params


def placed(
    shapes: Params,
    *,
    dtype: Literal["float32", "bfloat16"] = "float32",
    mesh: Mesh | AbstractMesh | None = None,
    rules: Rules = (),
) -> Params:
    """Add a dtype and, on a mesh, a sharding to every shape.

    Args:
      shapes: shapes from `jaxret.nn.functional.Module.shapes`.
      dtype: dtype of all parameters.
      mesh: devices of the parameters; None: the default device.
      rules: sharding rules by path (`jaxret.runtime.sharding.by_path`); the rest is replicated.

    Raises:
      ValueError: if rules are given without a mesh.
    """
    if mesh is None:
        if rules:
            raise ValueError("rules say where on a mesh parameters go: give the mesh too")
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, jnp.dtype(dtype)), shapes)
    return jax.tree.map(
        lambda s, spec: jax.ShapeDtypeStruct(
            s.shape, jnp.dtype(dtype), sharding=NamedSharding(mesh, spec)
        ),
        shapes,
        by_path(shapes, rules),
    )


def device_bytes(params: Params) -> int:
    """Return the bytes of the parameters on each of their devices."""
    return sum(_local(leaf) for leaf in jax.tree.leaves(params))


def memory_report(params: Params) -> str:
    """Describe the memory of parameters: in total, per device, and of the largest array.

    Gradients, the optimiser's state and activations are not included.
    """
    leaves = jax.tree.leaves_with_path(params)
    count = sum(math.prod(leaf.shape) for _, leaf in leaves)
    whole = sum(_bytes(leaf, leaf.shape) for _, leaf in leaves)
    dtypes = ", ".join(sorted({str(leaf.dtype) for _, leaf in leaves}))
    shardings = [leaf.sharding for _, leaf in leaves if leaf.sharding is not None]
    devices = max((sharding.num_devices for sharding in shardings), default=1)
    copied = sum(_local(leaf) for _, leaf in leaves if _local(leaf) == _bytes(leaf, leaf.shape))
    path, largest = max(leaves, key=lambda pair: _local(pair[1]))
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    share = "on one device"
    if devices > 1:
        share = (
            f"on each of {devices} devices {_size(device_bytes(params))}, {_size(copied)} copied"
        )
    return (
        f"{count:,} parameters in {dtypes}: {_size(whole)}\n  {share}\n"
        f"  largest array there: {name} {list(largest.shape)}, {_size(_local(largest))}"
    )


def _local(leaf):
    """Return the bytes of a leaf's part on a device."""
    shape = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
    return _bytes(leaf, shape)


def _bytes(leaf, shape):
    return math.prod(shape) * leaf.dtype.itemsize


def _size(count):
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
