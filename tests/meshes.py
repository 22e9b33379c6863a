"""Meshes of devices that are not there, for programs that are only lowered."""

from jax.sharding import AbstractMesh, AxisType


def abstract_mesh(**axes: int) -> AbstractMesh:
    """``abstract_mesh(run=1, item=8)``; XLA says what lies where, as on the library's meshes."""
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
