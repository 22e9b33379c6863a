"""Abstract meshes, for programs that are lowered without devices."""

from jax.sharding import AbstractMesh, AxisType


def abstract_mesh(**axes: int) -> AbstractMesh:
    """Make ``abstract_mesh(run=1, item=8)`` with automatic axes, as on the library's meshes."""
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
