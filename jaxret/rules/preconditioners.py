"""In which direction, and how far, a rank-one step really goes.

    Theta <- Theta - step c u^T        none: every other learner
             Theta - step c (A u)^T    second moment: A the inverse second moment of past queries,
                                       so that directions which all queries share count less
             Theta - step (c / s) u^T  by row: s_i^2 = 1 + sum of past (c_i)^2 |u|^2 of the row, so
                                       that a tool that has moved much moves less   (Adagrad)

Each keeps the step of rank one.

Letters: I items, d width.
"""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require


class Apply(Protocol):
    """Turns a step into another: memory, c [I], u [d] -> memory, c [I], u [d]."""

    def __call__(
        self, memory: Any, c: Float[Array, " I"], u: Float[Array, " d"]
    ) -> tuple[Any, Float[Array, " I"], Float[Array, " d"]]: ...


class Preconditioner(NamedTuple):
    """A named change of steps, and what it remembers."""

    name: str
    init: Any  # I, d, dtype -> arrays
    apply: Apply
    by_row: bool = False  # u stays as it is, and the memory is one number a row


@memoized
def second_moment(*, ridge: float = 1000.0) -> Preconditioner:
    """``A = (ridge + t) (ridge I + d sum_s u_s u_s^T)^-1``, the current u counted in.

    It starts at the identity, and stays near it for unit vectors that point everywhere evenly. The
    inverse is kept by Sherman and Morrison's formula, which costs d^2 numbers a round.

    Args:
      ridge: how many rounds the identity counts for, > 0.
    """
    require("ridge", ridge, "> 0", lambda x: x > 0)

    def init(items, width, dtype):
        return jnp.eye(width, dtype=dtype) / ridge, jnp.asarray(ridge, dtype)

    def apply(memory, c, u):
        inverse, count = memory
        v = inverse @ u
        scale = len(u) / (1.0 + len(u) * (u @ v))
        inverse = inverse - scale * v[:, None] * v[None, :]
        count = count + 1.0
        return (inverse, count), c, count * (inverse @ u)

    return Preconditioner("second_moment", init, apply)


@memoized
def by_row() -> Preconditioner:
    """Adagrad with one number a row (Duchi, Hazan and Singer 2011), the current step counted in."""

    def init(items, width, dtype):
        return jnp.ones(items, dtype)

    def apply(memory, c, u):
        memory = memory + c**2 * (u @ u)
        return memory, c / jnp.sqrt(memory), u

    return Preconditioner("by_row", init, apply, by_row=True)


REGISTRY = {f.__name__: f for f in (second_moment, by_row)}
