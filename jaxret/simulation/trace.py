"""Measurements of a round, by the labels that learners are not given.

    loss   -log p of the right item, averaged over the labels       ORAG Section 2.2

where p are the model's probabilities before the update. Labels that are absent do not count.

Letters: I items, L labels.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.types import Feedback


class Measured(NamedTuple):
    """Measurements of one round; scalars.

    Attributes:
      p_success: sum of p over the labels.
      loss: -log p, averaged over the labels.
      inverse_p: sum_i 1 / p_i.
      logit_label: logit, averaged over the labels.
      logit_sum: sum of the logits over the available items.
    """

    p_success: Float[Array, ""]
    loss: Float[Array, ""]
    inverse_p: Float[Array, ""]
    logit_label: Float[Array, ""]
    logit_sum: Float[Array, ""]


def reported(feedback: Feedback) -> Float[Array, ""]:
    """Return the reward for a `jaxret.types.Trace`, NaN if no feedback was observed.

    Returns:
      [].
    """
    if feedback.observed is True:
        return feedback.reward
    return jnp.where(feedback.observed, feedback.reward, jnp.nan)


def of_item(
    p: Float[Array, " I"] | None, item: Int[Array, ""], axis: Axis = None
) -> Float[Array, ""]:
    """Return the calibrated probability of an item; NaN if it is unknown or no item was shown.

    Args:
      p: probability that each item works [I]; None for a learner that does not predict it.
      item: position of the item in the catalogue, or -1.
      axis: the mesh axis of the items, or None.

    Returns:
      [].
    """
    if p is None:
        return jnp.asarray(jnp.nan)
    return jnp.where(item < 0, jnp.nan, over_items.take(p, jnp.maximum(item, 0), axis))


def measure(
    logits: Float[Array, " I"] | None, labels: Int[Array, " L"], axis: Axis = None
) -> Measured:
    """Measure a round; all numbers are 0 if no label is available.

    Args:
      logits: [I], minus infinity where an item is absent; None for a learner without a softmax,
        whose measurements are NaN.
      labels: [L], -1 pads.
      axis: the mesh axis of the items, or None.
    """
    if logits is None:
        return Measured(*[jnp.asarray(jnp.nan)] * len(Measured._fields))
    available = jnp.isfinite(logits)
    finite = jnp.where(available, logits, 0.0)
    top = over_items.maximum(logits, axis)
    log_total = top + jnp.log(over_items.total(jnp.exp(logits - top), axis))
    present = over_items.take(available.astype(logits.dtype), labels, axis) > 0
    counts = (labels >= 0) & present
    of_labels = over_items.take(finite, labels, axis)
    n = jnp.maximum(counts.sum(), 1)
    log_p = jnp.where(counts, of_labels - log_total, 0.0)
    inverse_p = jnp.where(available, jnp.exp(log_total - finite), 0.0)
    return Measured(
        p_success=jnp.where(counts, jnp.exp(log_p), 0.0).sum(),
        loss=-log_p.sum() / n,
        inverse_p=over_items.total(inverse_p, axis),
        logit_label=jnp.where(counts, of_labels, 0.0).sum() / n,
        logit_sum=over_items.total(finite, axis),
    )
