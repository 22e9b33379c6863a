"""Who is shown: from logits to a slate of items, each with its propensity.

    softmax         p_i, or p_i sharpened by a temperature of its own     ORAG Eq. (3)
    greedy          the k best                                            plain retrieval
    epsilon_greedy  the k best, or with probability epsilon any k         Banditron

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
from jaxtyping import Array, Float

from jaxret import sharding
from jaxret.sharding import Axis
from jaxret.types import PRNGKey, Slate
from jaxret.validate import require


class Show(Protocol):
    """Chooses a slate.

    Args:
      key: consumed.
      logits: [I], minus infinity where an item is absent; absent items are never shown.
      axis: the mesh axis over which the items are split, or None.
    """

    def __call__(self, key: PRNGKey, logits: Float[Array, " I"], axis: Axis) -> Slate: ...


class Policy(NamedTuple):
    """A named way to choose k items."""

    name: str
    show: Show
    k: int


def softmax(*, temperature: float = 1.0, k: int = 1) -> Policy:
    """Draws in proportion to ``exp(logits / temperature)``, without replacement.

    Args:
      temperature: relative to the model's own: 1 acts with the probabilities it learns with.
      k: items shown, at least 1.
    """
    require("temperature", temperature, "> 0", lambda x: x > 0)
    require("k", k, ">= 1", lambda x: x >= 1)

    def one(key, logits, axis):
        probs = sharding.softmax(_sharpened(logits, temperature), axis)
        item = sharding.draw(probs, jax.random.uniform(key, dtype=probs.dtype), axis)
        return Slate(items=item[None], propensity=sharding.take(probs, item[None], axis))

    def many(key, logits, axis):
        log_p = _log_softmax(_sharpened(logits, temperature), axis)
        perturbed, items = _gumbel_top_k(key, log_p, k + 1, axis)
        kappa = perturbed[-1]  # the k-th largest among the others, for each item shown
        chance = -jnp.expm1(-jnp.exp(sharding.take(log_p, items[:k], axis) - kappa))
        return Slate(items=items[:k], propensity=chance)

    return Policy("softmax", one if k == 1 else many, k)


def greedy(*, k: int = 1) -> Policy:
    """The k largest logits, with propensity 1."""
    require("k", k, ">= 1", lambda x: x >= 1)

    def show(key, logits, axis):
        del key
        items = _best(logits, k, axis)
        return Slate(items=items, propensity=jnp.ones(k, logits.dtype))

    return Policy("greedy", show, k)


def epsilon_greedy(*, epsilon: float, k: int = 1) -> Policy:
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
        _, any_k = _gumbel_top_k(key, jnp.where(here, 0.0, -jnp.inf), k, axis)
        explore = jax.random.uniform(coin, dtype=logits.dtype) < epsilon
        items = jnp.where(explore, any_k, best)
        among_best = (items[:, None] == best[None, :]).any(axis=1)
        evenly = epsilon * k / sharding.total(here.astype(logits.dtype), axis)
        return Slate(items=items, propensity=(1 - epsilon) * among_best + evenly)

    return Policy("epsilon_greedy", show, k)


def _sharpened(logits, temperature):
    return logits if isinstance(temperature, float) and temperature == 1.0 else logits / temperature


def _best(logits, k, axis):
    if k == 1:
        return sharding.argmax(logits, axis)[None]
    return sharding.top_k(logits, k, axis)[1]


def _log_softmax(logits, axis):
    shifted = logits - sharding.maximum(logits, axis)
    return shifted - jnp.log(sharding.total(jnp.exp(shifted), axis))


def _gumbel_top_k(key, log_p, k, axis):
    """The k largest of log p + Gumbel noise; the noise of an item does not depend on the mesh."""
    n = log_p.shape[0]
    if axis is None:
        noise = jax.random.gumbel(key, (n,), log_p.dtype)
    else:
        everyone = jax.random.gumbel(key, (n * lax.axis_size(axis),), log_p.dtype)
        noise = lax.dynamic_slice_in_dim(everyone, n * lax.axis_index(axis), n)
    return sharding.top_k(log_p + noise, k, axis)
