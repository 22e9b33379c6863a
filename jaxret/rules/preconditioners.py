"""Preconditioners, which change the direction or the length of a rank-one step.

    Theta <- Theta - step c u^T        none
             Theta - step c (A u)^T    second moment: A is the inverse second moment of past
                                       queries, which shrinks directions that all queries share
             Theta - step (c / s) u^T  by row: s_i^2 = 1 + sum of past (c_i)^2 |u|^2 of the row,
                                       which shrinks the steps of rows that moved much (Adagrad)

The preconditioned step is again of rank one.

Letters: I items, d width.
"""

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require


class Apply(Protocol):
    """Precondition a step: memory, c [I], u [d] -> memory, c [I], u [d]."""

    def __call__(
        self, memory: Any, c: Float[Array, " I"], u: Float[Array, " d"]
    ) -> tuple[Any, Float[Array, " I"], Float[Array, " d"]]: ...


class Preconditioner(NamedTuple):
    """A named function of steps, and its memory."""

    name: str
    init: Any  # I, d, dtype -> arrays
    apply: Apply
    by_row: bool = False  # whether u is unchanged and the memory is one number per row


@memoized
def second_moment(*, ridge: float = 1000.0) -> Preconditioner:
    """Apply ``A = (ridge + t) (ridge I + d sum_s u_s u_s^T)^-1``, including the current u.

    A starts at the identity, and stays near it for isotropic unit vectors. The inverse is updated
    by the Sherman-Morrison formula, at a cost of d^2 products per round.

    Args:
      ridge: weight of the identity, in rounds, > 0.

    Raises:
      ValueError: if ``ridge`` is not positive.
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
    """Scale steps by Adagrad with one number per row (Duchi et al. 2011), current step included."""

    def init(items, width, dtype):
        return jnp.ones(items, dtype)

    def apply(memory, c, u):
        memory = memory + c**2 * (u @ u)
        return memory, c / jnp.sqrt(memory), u

    return Preconditioner("by_row", init, apply, by_row=True)
