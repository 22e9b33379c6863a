"""What can be said of a round by somebody who knows the labels; no learner sees any of it.

    loss   -log p of the right item, averaged over the labels       ORAG Section 2.2

of the model's probabilities before the update. Labels that are absent do not count.

Letters: I items, L labels.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis


class Measured(NamedTuple):
    """Of one round; scalars."""

    p_success: Float[Array, ""]  # sum of p over the labels
    loss: Float[Array, ""]  # -log p, averaged over the labels
    inverse_p: Float[Array, ""]  # sum_i 1 / p_i
    logit_label: Float[Array, ""]  # theta . q / tau, averaged over the labels
    logit_sum: Float[Array, ""]  # sum_i theta_i . q / tau


def measure(
    logits: Float[Array, " I"] | None, labels: Int[Array, " L"], axis: Axis = None
) -> Measured:
    """Describes a round; 0 throughout where no label is available.

    Args:
      logits: [I], minus infinity where an item is absent; None, of a learner without a softmax,
        gives NaN throughout.
      labels: [L], -1 pads.
      axis: the mesh axis of the items, or None.
    """
    if logits is None:
        return Measured(*[jnp.asarray(jnp.nan)] * len(Measured._fields))
    here = jnp.isfinite(logits)
    finite = jnp.where(here, logits, 0.0)
    top = over_items.maximum(logits, axis)
    log_total = top + jnp.log(over_items.total(jnp.exp(logits - top), axis))
    counts = (labels >= 0) & (over_items.take(here.astype(logits.dtype), labels, axis) > 0)
    return measured(
        over_items.take(finite, labels, axis),
        counts,
        log_total,
        over_items.total(jnp.where(here, jnp.exp(log_total - finite), 0.0), axis),
        over_items.total(finite, axis),
    )


def measured(
    of_labels: Float[Array, " L"],
    counts: Bool[Array, " L"],
    log_total: Float[Array, ""],
    inverse_p: Float[Array, ""],
    logit_sum: Float[Array, ""],
) -> Measured:
    """The same of a round whose logits have been summed up.

    Args:
      of_labels: logits of the labels.
      counts: which labels are available.
      log_total: the logarithm of the sum of the exponentials of all logits.
      inverse_p: as it is reported.
      logit_sum: as it is reported.
    """
    n = jnp.maximum(counts.sum(), 1)
    log_p = jnp.where(counts, of_labels - log_total, 0.0)
    return Measured(
        p_success=jnp.where(counts, jnp.exp(log_p), 0.0).sum(),
        loss=-log_p.sum() / n,
        inverse_p=inverse_p,
        logit_label=jnp.where(counts, of_labels, 0.0).sum() / n,
        logit_sum=logit_sum,
    )
