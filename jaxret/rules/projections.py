"""Projections of the rows: none, to a ball, to a sphere   (ORAG Algorithm 1, line 6).

Each projection rescales a row by a function of its squared norm. The blocked form can therefore
project exactly without reading Theta: after a rank-one step

    ||theta - e q||^2 = ||theta||^2 - 2 e (theta . q) + e^2 ||q||^2.

The ball is convex, so the regret bounds hold for any comparator in it. The sphere is not convex and
voids the bounds; on it scores are cosine similarities.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require


class Projection(NamedTuple):
    """A named function from squared norms [I] to the factors that rescale the rows [I]."""

    name: str
    factor: Callable[[Float[Array, " I"]], Float[Array, " I"]] | None  # None: no projection
    convex: bool
    radius: float | None = None


@memoized
def none() -> Projection:
    """Leave rows as they are: Algorithm 1 without its optional step."""
    return Projection("none", None, convex=True)


@memoized
def ball(*, radius: float = 1.0) -> Projection:
    """Shorten rows longer than ``radius`` to that length.

    Raises:
      ValueError: if the radius is not positive.
    """
    require("radius", radius, "> 0", lambda x: x > 0)

    def factor(norm2):
        return jnp.where(norm2 > radius**2, radius / jnp.sqrt(_positive(norm2)), 1.0)

    return Projection("ball", factor, convex=True, radius=radius)


@memoized
def sphere(*, radius: float = 1.0) -> Projection:
    """Rescale every row except zero rows to length ``radius``.

    Raises:
      ValueError: if the radius is not positive.
    """
    require("radius", radius, "> 0", lambda x: x > 0)

    def factor(norm2):
        return jnp.where(norm2 > 0, radius / jnp.sqrt(_positive(norm2)), 1.0)

    return Projection("sphere", factor, convex=False, radius=radius)


def project(projection: Projection, theta: Float[Array, "I d"]) -> Float[Array, "I d"]:
    """Apply a projection to every row of Theta.

    Returns:
      [I, d].
    """
    if projection.factor is None:
        return theta
    return theta * projection.factor(jnp.sum(theta**2, axis=1))[:, None]


def _positive(norm2):
    return jnp.maximum(norm2, jnp.finfo(norm2.dtype).tiny)
