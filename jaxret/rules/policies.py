"""Policies: from logits to the items shown, with propensities.

    softmax         drawn from p, or from p at another temperature        ORAG Eq. (3)
    greedy          the k best items                                      static retrieval
    epsilon_greedy  the k best, or with probability epsilon k random ones  Banditron
    exploring       any of these with k = 1, or with probability epsilon a random item

The propensity is the probability with which the policy chose an item; it equals the model's p only
for one item drawn by `softmax` at temperature 1. For k > 1 items drawn without replacement
(Algorithm 2, line 4) the draw is Gumbel-top-k, and the propensity of an item is the probability
that it enters the slate given the noise of all others, ``1 - exp(-exp(log p_i - kappa))`` with
kappa the k-th largest perturbed log-probability among the others (Kool, van Hoof and Welling 2019).
Weights by its inverse are unbiased.

Letters: I items, k items shown.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxret.runtime import over_items
from jaxret.runtime.memo import memoized
from jaxret.runtime.over_items import Axis
from jaxret.runtime.validate import require
from jaxret.types import PRNGKey, Slate


class Show(Protocol):
    """Choose a slate.

    Args:
      key: consumed.
      logits: [I], minus infinity where an item is absent; absent items are never shown. If fewer
        than k items are available, the first item fills the slate.
      axis: the mesh axis over which the items are split, or None.
    """

    def __call__(self, key: PRNGKey, logits: Float[Array, " I"], axis: Axis) -> Slate: ...


class Probabilities(Protocol):
    """Return the probability [I] that each item is shown, from logits [I]; sums to 1."""

    def __call__(self, logits: Float[Array, " I"], axis: Axis = None) -> Float[Array, " I"]: ...


class Policy(NamedTuple):
    """A rule that chooses k items from logits.

    Attributes:
      name: name of the policy in tables.
      show: chooses the slate.
      k: items on a slate.
      probabilities: logits [I] -> probability [I] of each item; None if k > 1.
      drawn_from: logits [I] -> p [I], if slates are drawn position by position from p without
        replacement; else None.
      temperature: temperature of the draw, relative to the model's temperature.
    """

    name: str
    show: Show
    k: int
    probabilities: Probabilities | None = None
    drawn_from: Probabilities | None = None
    temperature: float = 1.0


@memoized
def softmax(*, temperature: float = 1.0, k: int = 1) -> Policy:
    """Draw k items without replacement, in proportion to ``exp(logits / temperature)``.

    Args:
      temperature: relative to the model's temperature, > 0; 1 draws from the model's softmax.
      k: items shown, >= 1.

    Raises:
      ValueError: if the temperature is not positive, or k is below 1.
    """
    require("temperature", temperature, "> 0", lambda x: x > 0)
    require("k", k, ">= 1", lambda x: x >= 1)

    def one(key, logits, axis):
        probs = over_items.softmax(_sharpened(logits, temperature), axis)
        item = over_items.draw(probs, jax.random.uniform(key, dtype=probs.dtype), axis)
        return Slate(items=item[None], propensity=over_items.take(probs, item[None], axis))

    def many(key, logits, axis):
        log_p = _log_softmax(_sharpened(logits, temperature), axis)
        perturbed = log_p + _gumbel(key, log_p, axis)
        items = _best(perturbed, k, axis)
        least = over_items.take(perturbed, items, axis).min()
        # For each item shown, the k-th largest among the others is the largest not shown.
        kappa = over_items.maximum(jnp.where(perturbed < least, perturbed, -jnp.inf), axis)
        propensity = -jnp.expm1(-jnp.exp(over_items.take(log_p, items, axis) - kappa))
        return Slate(items=items, propensity=propensity)

    def probabilities(logits, axis=None):
        return over_items.softmax(_sharpened(logits, temperature), axis)

    if k == 1:
        return Policy("softmax", one, k, probabilities, temperature=temperature)
    return Policy("softmax", many, k, drawn_from=probabilities, temperature=temperature)


@memoized
def greedy(*, k: int = 1) -> Policy:
    """Show the k largest logits, with propensity 1.

    Args:
      k: items shown, >= 1.

    Raises:
      ValueError: if k is below 1.
    """
    require("k", k, ">= 1", lambda x: x >= 1)

    def show(key, logits, axis):
        del key
        items = _best(logits, k, axis)
        return Slate(items=items, propensity=jnp.ones(k, logits.dtype))

    def probabilities(logits, axis=None):
        return over_items.one_hot(over_items.argmax(logits, axis), logits, axis)

    return Policy("greedy", show, k, probabilities if k == 1 else None)


@memoized
def epsilon_greedy(*, epsilon: float = 0.05, k: int = 1) -> Policy:
    """Show the k best items, or with probability epsilon k items drawn uniformly.

    The propensity of an item is ``(1 - epsilon) 1[i among the k best] + epsilon k / available``.

    Args:
      epsilon: share of uniform draws, in [0, 1].
      k: items shown, >= 1.

    Raises:
      ValueError: if epsilon is out of its range, or k is below 1.
    """
    require("epsilon", epsilon, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("k", k, ">= 1", lambda x: x >= 1)

    def show(key, logits, axis):
        coin, key = jax.random.split(key)
        available = jnp.isfinite(logits)
        best = _best(logits, k, axis)
        if k == 1:
            weights = available.astype(logits.dtype)
            uniform = jax.random.uniform(key, dtype=logits.dtype)
            any_k = over_items.draw(weights, uniform, axis)[None]
        else:
            any_k = _best(jnp.where(available, _gumbel(key, logits, axis), -jnp.inf), k, axis)
        explore = jax.random.uniform(coin, dtype=logits.dtype) < epsilon
        items = jnp.where(explore, any_k, best)
        among_best = (items[:, None] == best[None, :]).any(axis=1)
        share = jnp.minimum(k / over_items.total(available.astype(logits.dtype), axis), 1.0)
        return Slate(items=items, propensity=(1 - epsilon) * among_best + epsilon * share)

    def probabilities(logits, axis=None):
        best = over_items.one_hot(over_items.argmax(logits, axis), logits, axis)
        available = jnp.isfinite(logits).astype(logits.dtype)
        return (1 - epsilon) * best + epsilon * available / over_items.total(available, axis)

    return Policy("epsilon_greedy", show, k, probabilities if k == 1 else None)


@memoized
def exploring(policy: Policy, *, epsilon: float) -> Policy:
    """Mix a policy of one item with a uniform draw.

    The propensity is exact, ``(1 - epsilon) p_i + epsilon / available``.

    Args:
      policy: policy of one item per round, with `Policy.probabilities`.
      epsilon: share of uniform draws, in [0, 1].

    Raises:
      ValueError: if the policy has no `Policy.probabilities`.
    """
    require("epsilon", epsilon, "in [0, 1]", lambda x: 0 <= x <= 1)
    if (inner := policy.probabilities) is None:
        raise ValueError(
            f"policy {policy.name!r} with k={policy.k} does not give the probability of each item: "
            "exploration needs one item per round and `Policy.probabilities`"
        )

    def probabilities(logits, axis=None):
        available = jnp.isfinite(logits).astype(logits.dtype)
        return (1 - epsilon) * inner(logits, axis) + epsilon * available / over_items.total(
            available, axis
        )

    def show(key, logits, axis):
        coin, lot, key = jax.random.split(key, 3)
        slate = policy.show(key, logits, axis)
        available = jnp.isfinite(logits)
        return explored(coin, lot, slate, probabilities(logits, axis), available, epsilon, axis)

    return Policy(f"{policy.name}+exploration", show, 1, probabilities)


def explored(
    coin: PRNGKey,
    lot: PRNGKey,
    slate: Slate,
    probabilities: Float[Array, " I"],
    available: Bool[Array, " I"],
    epsilon: float,
    axis: Axis,
) -> Slate:
    """Replace a slate of one item by a uniform draw with probability epsilon.

    Args:
      coin: random key of the decision.
      lot: random key of the draw.
      slate: slate of one item.
      probabilities: probabilities of the mixture of both [I].
      available: mask of the available items [I].
      epsilon: share of uniform draws.
      axis: the mesh axis of the items, or None.
    """
    weights = available.astype(probabilities.dtype)
    any_one = over_items.draw(weights, jax.random.uniform(lot, dtype=weights.dtype), axis)
    explore = jax.random.uniform(coin, dtype=weights.dtype) < epsilon
    items = jnp.where(explore, any_one, slate.items)
    return Slate(items=items, propensity=over_items.take(probabilities, items, axis))


def by_position(p: Float[Array, " I"], items: Int[Array, " k"]) -> Float[Array, " k"]:
    """Return the probability of each item of a slate, given the items at the positions above.

    The product over positions is the probability of the ordered slate, by which off-policy
    evaluation divides. `Slate.propensity`, in contrast, is the probability that an item is on the
    slate at all.

    Args:
      p: probabilities [I] from which items are drawn without replacement.
      items: items of the slate, in the order of the draws.

    Returns:
      ``p_j / (1 - sum of p above)`` [k]; the denominator is computed as the sum of the remaining p,
      to avoid cancellation; NaN if that sum is 0.
    """

    def draw(left, item):
        return left.at[item].set(0.0), left[item] / left.sum()

    return lax.scan(draw, p, items)[1]


def _sharpened(logits, temperature):
    return logits if isinstance(temperature, float) and temperature == 1.0 else logits / temperature


def _best(values, k, axis):
    """Return the positions of the k largest values; if fewer are available, repeat the best one."""
    if k == 1:
        return over_items.argmax(values, axis)[None]
    largest, items = over_items.top_k(values, k, axis)
    return jnp.where(jnp.isfinite(largest), items, items[0])


def _log_softmax(logits, axis):
    shifted = logits - over_items.maximum(logits, axis)
    return shifted - jnp.log(over_items.total(jnp.exp(shifted), axis))


def _gumbel(key, like, axis):
    """Draw Gumbel noise for every local item, independent of how the items are sharded."""
    n = like.shape[0]
    if axis is None:
        return jax.random.gumbel(key, (n,), like.dtype)
    everyone = jax.random.gumbel(key, (n * lax.axis_size(axis),), like.dtype)
    return lax.dynamic_slice_in_dim(everyone, n * lax.axis_index(axis), n)
