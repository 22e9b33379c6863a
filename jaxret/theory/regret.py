"""Cumulative loss, and regret against a fixed Theta   (ORAG Sections 2.2 and 5).

    l(Theta; (q, i*)) = -log softmax(Theta q / tau)_{i*}
    Reg_T(U) = sum_{t <= T} l(Theta_t; (q_t, i_t*)) - sum_{t <= T} l(U; (q_t, i_t*))

With several labels l is averaged over them, exactly as a trace records it.

Letters: I items, d width, N queries, L labels, T rounds, S seeds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime import over_items
from jaxret.simulation.trace import measure

_CHUNK = 256  # queries at a time: the logits of all queries at once need not fit in memory


class Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float
    stderr: float  # NaN for a single seed


def losses(
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    labels: Int[Array, "N L"],
    *,
    tau: float | Float[Array, ""],
    available: Bool[Array, " I"] | None = None,
) -> Float[Array, " N"]:
    """The loss of one Theta on every query, in chunks; differentiable in ``theta``.

    Args:
      theta: any item embeddings.
      queries: [N, d].
      labels: [N, L], -1 pads; a query without labels costs 0.
      tau: temperature, > 0.
      available: items that are there; None means all.

    Returns:
      [N].
    """
    here = jnp.ones(theta.shape[0], bool) if available is None else available

    @jax.checkpoint  # a gradient recomputes a chunk's logits, and so needs no more memory
    def loss(query_and_labels):
        query, its_labels = query_and_labels
        return measure(over_items.masked(theta @ query / tau, here), its_labels, None).loss

    return lax.map(loss, (queries, labels), batch_size=_CHUNK)


def regret(
    trace_losses: Float[ArrayLike, "*S T"],
    comparator_losses: Float[ArrayLike, " N"],
    order: Int[ArrayLike, "*S T"],
) -> Float[np.ndarray, "*S T"]:
    """Regret after each round, summed on the host in float64.

    Args:
      trace_losses: `Trace.loss`, of one run or of several.
      comparator_losses: `losses` of the comparator.
      order: the query of each round; rounds of -1 were not run and add nothing.

    Returns:
      [T], or [S, T].
    """
    order, losses_of_run = np.asarray(order), np.asarray(trace_losses, np.float64)
    compared = np.asarray(comparator_losses, np.float64)[order]
    if losses_of_run.shape != compared.shape:
        raise ValueError(
            f"losses {losses_of_run.shape} and order {compared.shape} must have one shape"
        )
    return np.cumsum(np.where(order >= 0, losses_of_run - compared, 0.0), axis=-1)


def over_seeds(values: Float[np.ndarray, " S"]) -> Estimate:
    """Mean and standard error of one number a seed."""
    values = np.asarray(values, np.float64)
    n = values.size
    stderr = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return Estimate(mean=float(values.mean()), stderr=float(stderr))
