"""Inverse-gap weighting: the worse a tool is predicted to be, the rarer it is shown.

    SquareCB    p_a = 1 / (K + gamma gap_a)                     gap_a = f_b - f_a,  b = argmax f
    FastCB      p_a = l_b / (K l_b + gamma gap_a)               l = 1 - f, the predicted loss
    both        p_b = 1 - the others, which is at least 1 / K

(Foster and Rakhlin 2020, Algorithm 1, after Abe and Long 1999; Foster and Krishnamurthy 2021,
Algorithm 1.) f_a in [0, 1] is the predicted chance of success; the papers predict losses. K counts
the tools that are there. The theory wants gamma of the order of K, so what is set here is ``gamma /
K``: one number for catalogues of any size, since then the K - 1 other tools share about the mean of
``1 / (1 + gamma/K gap)``.

Letters: I items, K of them there.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxret.runtime import over_items
from jaxret.types import PRNGKey, Slate


def inverse_gap(
    means: Float[Array, " I"],
    available: Bool[Array, " I"],
    gamma_over_k: float | Float[Array, ""],
    *,
    reweighted: bool = False,
) -> Float[Array, " I"]:
    """The chance with which each tool is shown.

    Args:
      means: predicted probabilities of success, in [0, 1]; of equals the first is b.
      available: who is there, at least one.
      gamma_over_k: gamma / K, > 0.
      reweighted: as FastCB has it: little is explored where the best hardly ever fails.

    Returns:
      [I], sum 1.
    """
    count = available.sum().astype(means.dtype)
    best = jnp.argmax(jnp.where(available, means, -jnp.inf))
    gap = jnp.where(available, means[best] - means, 0.0)
    # Off zero: where the best tool is never to fail, the weights of its equals would be 0 / 0.
    unit = jnp.maximum(1.0 - means[best], 1e-6) if reweighted else 1.0
    others = unit / (count * (unit + gamma_over_k * gap))
    others = jnp.where(available, others, 0.0).at[best].set(0.0)
    return others.at[best].set(1.0 - others.sum())


def drawn(key: PRNGKey, probabilities: Float[Array, " I"]) -> Slate:
    """One tool drawn by its chance, which is its propensity. ``key`` is consumed."""
    item = over_items.draw(probabilities, jax.random.uniform(key, dtype=probabilities.dtype), None)
    return Slate(items=item[None], propensity=probabilities[item][None])
