"""How the step size changes with the round: constant, 1/sqrt(t), cosine   (ORAG 3, C.5.2).

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
    """eta, always: what Theorem 5.1 is about."""
    return lambda t: jnp.ones_like(t, jnp.result_type(float))


@memoized
def inverse_sqrt() -> Schedule:
    """eta / sqrt(t + 1)."""
    return lambda t: 1.0 / jnp.sqrt(t + 1.0)


@memoized
def cosine(*, rounds: int) -> Schedule:
    """Half a cosine from eta down to 0 at ``rounds``, and 0 from there on."""
    require("rounds", rounds, ">= 1", lambda x: x >= 1)
    share = lambda t: jnp.minimum(t, rounds) * (1.0 / rounds)  # noqa: E731
    return lambda t: 0.5 * (1.0 + jnp.cos(jnp.pi * share(t)))


REGISTRY = {f.__name__: f for f in (constant, inverse_sqrt, cosine)}
