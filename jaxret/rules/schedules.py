"""Schedules of the step size: constant, 1/sqrt(t), cosine   (ORAG 3, C.5.2).

A schedule maps the round t = 0, 1, ... to a factor of eta; round 0 has factor 1.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require

Schedule: TypeAlias = Callable[[Int[Array, ""]], Float[Array, ""]]


@memoized
def constant() -> Schedule:
    """Keep the step size eta, as in Theorem 5.1."""
    return lambda t: jnp.ones_like(t, jnp.result_type(float))


@memoized
def inverse_sqrt() -> Schedule:
    """Divide the step size: eta / sqrt(t + 1)."""
    return lambda t: 1.0 / jnp.sqrt(t + 1.0)


@memoized
def cosine(*, rounds: int) -> Schedule:
    """Lower the step size from eta to 0 at ``rounds`` along half a cosine, then keep 0.

    Raises:
      ValueError: if ``rounds`` is below 1.
    """
    require("rounds", rounds, ">= 1", lambda x: x >= 1)
    share = lambda t: jnp.minimum(t, rounds) * (1.0 / rounds)  # noqa: E731
    return lambda t: 0.5 * (1.0 + jnp.cos(jnp.pi * share(t)))
