"""Who is shown: from logits to a slate of items, each with its propensity.

    softmax         p_i, or p_i sharpened by a temperature of its own     ORAG Eq. (3)
    greedy          the k best                                            plain retrieval
    epsilon_greedy  the k best, or with probability epsilon any k         Banditron
    exploring       any of these with k = 1, or with probability epsilon any item

The propensity is the probability of what was really done; it equals the model's p only for
one item drawn by `softmax` at temperature 1. For k > 1 items drawn without replacement
(Algorithm 2, line 4) the draw is Gumbel-top-k, and the propensity of an item is the
probability that it enters the slate given the noise of all others,
``1 - exp(-exp(log p_i - kappa))`` with kappa the k-th largest perturbed log-probability among
the others (Kool, van Hoof and Welling 2019): an inverse weight with the right mean.

Letters: I items, k items shown.
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxret.runtime import over_items
from jaxret.runtime.over_items import Axis
from jaxret.runtime.validate import require
from jaxret.types import PRNGKey, Slate


class Show(Protocol):
    """Chooses a slate.

    Args:
      key: consumed.
      logits: [I], minus infinity where an item is absent; absent items are never shown. Where
        fewer than k are available, the first of the slate stands in it again.
      axis: the mesh axis over which the items are split, or None.
    """

    def __call__(self, key: PRNGKey, logits: Float[Array, " I"], axis: Axis) -> Slate: ...


class Chances(Protocol):
    """The probability that each item is shown: logits [I] -> [I], sum 1; for k = 1."""

    def __call__(self, logits: Float[Array, " I"], axis: Axis = None) -> Float[Array, " I"]: ...


class Policy(NamedTuple):
    """A named way to choose k items."""

    name: str
    show: Show
    k: int
    chances: Chances | None = None  # for exact averages; None where k > 1 or nobody wrote them
    drawn_from: Chances | None = None  # p of a slate drawn place by place from what is left of p
    temperature: float = 1.0  # of a draw from p, relative to the model's own


def softmax(*, temperature: float = 1.0, k: int = 1) -> Policy:
    """Draws in proportion to ``exp(logits / temperature)``, without replacement.

    Args:
      temperature: relative to the model's own: 1 acts with the probabilities it learns with.
      k: items shown, at least 1.
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
        # The k-th largest among the others, for each item shown: the best that is left out.
        kappa = over_items.maximum(jnp.where(perturbed < least, perturbed, -jnp.inf), axis)
        chance = -jnp.expm1(-jnp.exp(over_items.take(log_p, items, axis) - kappa))
        return Slate(items=items, propensity=chance)

    def chances(logits, axis=None):
        return over_items.softmax(_sharpened(logits, temperature), axis)

    if k == 1:
        return Policy("softmax", one, k, chances, temperature=temperature)
    return Policy("softmax", many, k, drawn_from=chances, temperature=temperature)


def greedy(*, k: int = 1) -> Policy:
    """The k largest logits, with propensity 1."""
    require("k", k, ">= 1", lambda x: x >= 1)

    def show(key, logits, axis):
        del key
        items = _best(logits, k, axis)
        return Slate(items=items, propensity=jnp.ones(k, logits.dtype))

    def chances(logits, axis=None):
        return over_items.one_hot(over_items.argmax(logits, axis), logits, axis)

    return Policy("greedy", show, k, chances if k == 1 else None)


def epsilon_greedy(*, epsilon: float = 0.05, k: int = 1) -> Policy:
    """The k best; with probability epsilon k items drawn evenly from all that are available.

    The propensity is that of standing in the slate:
    ``(1 - epsilon) 1[i among the k best] + epsilon k / available``.
    """
    require("epsilon", epsilon, "in [0, 1]", lambda x: 0 <= x <= 1)
    require("k", k, ">= 1", lambda x: x >= 1)

    def show(key, logits, axis):
        coin, key = jax.random.split(key)
        here = jnp.isfinite(logits)
        best = _best(logits, k, axis)
        if k == 1:
            weights = here.astype(logits.dtype)
            uniform = jax.random.uniform(key, dtype=logits.dtype)
            any_k = over_items.draw(weights, uniform, axis)[None]
        else:
            any_k = _best(jnp.where(here, _gumbel(key, logits, axis), -jnp.inf), k, axis)
        explore = jax.random.uniform(coin, dtype=logits.dtype) < epsilon
        items = jnp.where(explore, any_k, best)
        among_best = (items[:, None] == best[None, :]).any(axis=1)
        share = jnp.minimum(k / over_items.total(here.astype(logits.dtype), axis), 1.0)
        return Slate(items=items, propensity=(1 - epsilon) * among_best + epsilon * share)

    def chances(logits, axis=None):
        best = over_items.one_hot(over_items.argmax(logits, axis), logits, axis)
        here = jnp.isfinite(logits).astype(logits.dtype)
        return (1 - epsilon) * best + epsilon * here / over_items.total(here, axis)

    return Policy("epsilon_greedy", show, k, chances if k == 1 else None)


def exploring(policy: Policy, *, epsilon: float) -> Policy:
    """Any policy of one item that knows its chances; with probability epsilon a random item.

    The propensity is exact, whichever of the two chose: ``(1 - epsilon) chance + epsilon / I``
    over the available items.
    """
    require("epsilon", epsilon, "in [0, 1]", lambda x: 0 <= x <= 1)
    if (inner := policy.chances) is None:
        raise ValueError(
            f"policy {policy.name!r} with k={policy.k} does not say with which chance it shows "
            "each item: exploration needs one item a round and `Policy.chances`"
        )

    def chances(logits, axis=None):
        here = jnp.isfinite(logits).astype(logits.dtype)
        return (1 - epsilon) * inner(logits, axis) + epsilon * here / over_items.total(here, axis)

    def show(key, logits, axis):
        coin, lot, key = jax.random.split(key, 3)
        slate = policy.show(key, logits, axis)
        here = jnp.isfinite(logits)
        return explored(coin, lot, slate, chances(logits, axis), here, epsilon, axis)

    return Policy(f"{policy.name}+exploration", show, 1, chances)


def explored(
    coin: PRNGKey,
    lot: PRNGKey,
    slate: Slate,
    chances: Float[Array, " I"],
    available: Bool[Array, " I"],
    epsilon: float,
    axis: Axis,
) -> Slate:
    """The slate, or with probability epsilon one available item; ``chances`` count both in."""
    weights = available.astype(chances.dtype)
    any_one = over_items.draw(weights, jax.random.uniform(lot, dtype=weights.dtype), axis)
    explore = jax.random.uniform(coin, dtype=weights.dtype) < epsilon
    items = jnp.where(explore, any_one, slate.items)
    return Slate(items=items, propensity=over_items.take(chances, items, axis))


def _sharpened(logits, temperature):
    return logits if isinstance(temperature, float) and temperature == 1.0 else logits / temperature


def _best(values, k, axis):
    """Positions of the k largest; where fewer are available, the best stands again."""
    if k == 1:
        return over_items.argmax(values, axis)[None]
    largest, items = over_items.top_k(values, k, axis)
    return jnp.where(jnp.isfinite(largest), items, items[0])


def _log_softmax(logits, axis):
    shifted = logits - over_items.maximum(logits, axis)
    return shifted - jnp.log(over_items.total(jnp.exp(shifted), axis))


def _gumbel(key, like, axis):
    """Gumbel noise for every local item; that of an item does not depend on the mesh."""
    n = like.shape[0]
    if axis is None:
        return jax.random.gumbel(key, (n,), like.dtype)
    everyone = jax.random.gumbel(key, (n * lax.axis_size(axis),), like.dtype)
    return lax.dynamic_slice_in_dim(everyone, n * lax.axis_index(axis), n)


REGISTRY = {f.__name__: f for f in (softmax, greedy, epsilon_greedy)}
