"""The rows of a learner that `rank_one` does not make: where they begin, what they are held to.

    document    Theta_1, the encoded documents: with no data it ranks as static retrieval does
    zero        nothing: what the field's rules begin with

Letters: I items, d width, N queries.
"""

from typing import Any, Literal, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxret.runtime.validate import require
from jaxret.types import State

Start: TypeAlias = Literal["document", "zero"]


def require_start(start: str) -> None:
    """Raises ValueError unless it is known."""
    require("start", start, "'document' or 'zero'", {"document", "zero"}.__contains__)


def first_rows(start: Start, theta: Float[Array, "I d"]) -> Float[Array, "I d"]:
    """Where the rows begin.

    Returns:
      [I, d].
    """
    return theta if start == "document" else jnp.zeros_like(theta)


def begin(
    theta: Float[Array, "I d"], available: Bool[Array, " I"] | None, extra: Any = ()
) -> State:
    """The state of round 0; everyone is there where ``available`` is None."""
    here = jnp.ones(len(theta), bool) if available is None else available
    return State(theta=theta, available=here, t=jnp.zeros((), jnp.int32), extra=extra)


def compare(queries: Float[Array, "N d"], theta: Float[Array, "I d"]) -> Float[Array, "N I"]:
    """Inner products of queries and rows, at full precision: a faster one rounds into ties.

    Returns:
      [N, I].
    """
    return jnp.matmul(queries, theta.T, precision=lax.Precision.HIGHEST)


def where_available(state: State, values: Float[Array, "*n I"]) -> Float[Array, "*n I"]:
    """Puts minus infinity where a tool is absent.

    Returns:
      [.., I].
    """
    return jnp.where(state.available, values, -jnp.inf)
