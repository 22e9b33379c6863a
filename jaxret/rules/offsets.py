"""Offsets: numbers per item that are added to the logits and known before the feedback.

    z_i = ((1 - w) theta_i . u + w x_i) / tau  -  s ln m_i

with x_i the prior score of the item for the query, such as the match of their words, and m_i the
usage of the item: the mean over past rounds of I p_i, with p the softmax of the logits without the
last term; 1 if all items are equally likely. An item that is near every query (a hub) is retrieved
too often, and dividing by its usage corrects that. Neither term depends on rewards: prior scores
help from the first query, and usage starts at 1 for every item and changes with each round whose
feedback arrives.

The gradient in Theta is ``(1 - w) c u^T / tau``, of rank one as before, so every estimator, policy
and projection applies; with the offsets given, the loss is convex in Theta. A rule stores the
temperature ``tau / (1 - w)``, by which rows and steps are divided, and the logits are

    z_i = (theta_i . u + w / (1 - w) x_i) / tau  -  s ln m_i

Usage starts at 1, with the weight of `FIRST` rounds. It is the mean of n p_i, with n the number
of available items, over the rounds in which item i was available: absence does not change it.

Sources: inverted softmax, Smith et al. (2017); CSLS, Conneau et al. (2018); QB-Norm, Bogolin et al.
(2022); logit adjustment, Menon et al. (2021); hubs, Radovanovic et al. (2010).

Letters: I items, K items with a prior score.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.types import Prior

FIRST = 20.0  # rounds that the initial usage counts as
WIDTH = 64  # largest number of prior scores per query


class Offsets(NamedTuple):
    """Weights of the offsets of a rule.

    Attributes:
      weight: weight w of the prior scores, in [0, 1); None: the scores are not read.
      strength: strength s of the division by usage, >= 0; None: usage is not counted.
      width: K, largest number of prior scores per query.
    """

    weight: float | Float[Array, ""] | None = None
    strength: float | Float[Array, ""] | None = None
    width: int = WIDTH


class Usage(NamedTuple):
    """How often the model retrieves each item.

    Attributes:
      mean: mean of n p_i over the rounds of each item [I].
      count: rounds in the mean, `FIRST` at the start [I].
    """

    mean: Float[Array, " I"]
    count: Float[Array, " I"]

    def without(self, items: Bool[Array, " I"]) -> "Usage":
        """Return the usage with some items reset to their initial usage."""
        return Usage(jnp.where(items, 1.0, self.mean), jnp.where(items, FIRST, self.count))


def first_usage(theta: Float[Array, "I d"]) -> Usage:
    """Return the initial usage, 1 for every item."""
    mean = jnp.ones_like(theta[:, 0])
    return Usage(mean, FIRST * mean)


def of_prior(
    offsets: Offsets, scores: Float[Array, "*n I"], tau: float | Float[Array, ""]
) -> Float[Array, "*n I"]:
    """Compute the offsets of prior scores.

    Args:
      offsets: offsets of the rule.
      scores: prior score of every item [..., I].
      tau: temperature of the rule, which is that of its rows.

    Returns:
      [..., I].
    """
    assert offsets.weight is not None
    return offsets.weight / (1.0 - offsets.weight) / tau * scores


def of_usage(offsets: Offsets, usage: Usage) -> Float[Array, " I"]:
    """Compute the offsets of usage, ``-s ln m_i``.

    Args:
      offsets: offsets of the rule, with a strength.
      usage: usage before the round.

    Returns:
      [I].
    """
    assert offsets.strength is not None
    return -offsets.strength * jnp.log(usage.mean)


def counted(offsets: Offsets, usage: Usage, logits: Float[Array, " I"], axis: Axis) -> Usage:
    """Update the usage by one round.

    Args:
      offsets: offsets of the rule.
      usage: usage before the round.
      logits: logits of the round, offsets included [I]; minus infinity for absent items.
      axis: the mesh axis of the items, or None.

    Returns:
      The usage after the round.
    """
    p = over_items.softmax(logits - of_usage(offsets, usage), axis)
    available = jnp.isfinite(logits)
    relative = p * over_items.total(available.astype(p.dtype), axis)
    count = usage.count + available
    mean = usage.mean + jnp.where(available, relative - usage.mean, 0.0) / count
    return Usage(mean, count)


def padded(prior: Prior | None, shape: tuple[int, ...], width: int) -> Prior:
    """Pad a prior to ``width`` scores per query.

    Args:
      prior: prior of one query or many, with at most ``width`` scores each; None: no scores.
      shape: shape of the queries: () for one, (n,) for many.
      width: K.

    Returns:
      A prior with fields [*shape, K].
    """
    if prior is None:
        return Prior(jnp.full((*shape, width), -1, jnp.int32), jnp.zeros((*shape, width)))
    missing = [(0, 0)] * len(shape) + [(0, width - prior.items.shape[-1])]
    return Prior(jnp.pad(prior.items, missing, constant_values=-1), jnp.pad(prior.scores, missing))


def dense(prior: Prior, like: Float[Array, " I"], axis: Axis) -> Float[Array, "*n I"]:
    """Return the prior score of every item.

    Args:
      prior: prior of one query or many, fields [..., K].
      like: array over this device's items, with the length and dtype of the result.
      axis: the mesh axis of the items, or None.

    Returns:
      [..., I], 0 for items without a score.
    """
    items, shape = like.shape[0], prior.items.shape[:-1]
    local = prior.items - over_items.item_ids(items, axis)[0]
    owned = (prior.items >= 0) & (local >= 0) & (local < items)
    rows = local.reshape(-1, local.shape[-1])
    rows = jnp.where(owned.reshape(rows.shape), rows, items)  # not owned: dropped
    which = jnp.arange(len(rows))[:, None]
    blank = jnp.zeros((len(rows), items), like.dtype)
    scores = prior.scores.reshape(rows.shape).astype(like.dtype)
    return blank.at[which, rows].add(scores, mode="drop").reshape(*shape, items)
