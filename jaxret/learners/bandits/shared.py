"""One linear regression of bits for all tools, on features of the query and the tool.

    x(q, a) = [sqrt(d) q * theta_a,  q theta_a,  base(q)]       base: 1, or q itself
    E[y]    = w x(q, a)

theta_a is the document of the tool and stays; what is learnt is w, by every round for every tool.
The factor sqrt(d) makes the products, of unit vectors, about as long as the cosine. With the
weights (u, c, b) of the three parts the mean is ``theta_a ((sqrt(d) u + c) * q) + b base(q)``: rows
compared with a query that is mapped by a diagonal, so that what is learnt can be saved as
embeddings.

From the documents the prior mean of w is 1 for the cosine and 0 for the rest; from zero it is 0,
and documents are features alone.

Letters: I items, d width, m = d + 1 + |base| features, N queries.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxret.learners.bandits import posterior, rows
from jaxret.learners.bandits.rows import Start
from jaxret.learners.learner import Act, CustomStructure, Learner, PerItem, where_observed
from jaxret.runtime.validate import require

Base: TypeAlias = Callable[[Float[Array, "*n d"]], Float[Array, "*n b"]]


def constant(queries: Float[Array, "*n d"]) -> Float[Array, "*n 1"]:
    """The base 1: what no tool and no query changes.

    Returns:
      [.., 1].
    """
    return jnp.ones((*queries.shape[:-1], 1), queries.dtype)


def itself(queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """The base q: how easy a query is, whatever the tool.

    Returns:
      [.., d].
    """
    return queries


def features(
    theta: Float[Array, "*n d"], query: Float[Array, " d"], base: Base
) -> Float[Array, "*n m"]:
    """x(q, a) of one tool or of many.

    Returns:
      [.., m].
    """
    products = len(query) ** 0.5 * theta * jnp.broadcast_to(query, theta.shape)
    cosine = (theta @ query)[..., None]
    return jnp.concatenate([products, cosine, _like(base(query), cosine)], axis=-1)


def mapped(weights: Float[Array, " m"], queries: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Queries as the documents are compared with them, ``(sqrt(d) u + c) * q``.

    Returns:
      [.., d].
    """
    width = queries.shape[-1]
    factors = width**0.5 * weights[:width] + weights[width]
    return jnp.broadcast_to(factors, queries.shape) * queries


def means(
    weights: Float[Array, " m"],
    theta: Float[Array, "I d"],
    queries: Float[Array, "N d"],
    base: Base,
) -> Float[Array, "N I"]:
    """``w x(q, a)`` of every query and tool, without making the features.

    Returns:
      [N, I].
    """
    offset = base(queries) @ weights[queries.shape[-1] + 1 :]
    return rows.compare(mapped(weights, queries), theta) + offset[:, None]


def shared_learner(
    name: str,
    *,
    base: Base,
    start: Start,
    ridge: float,
    act: Act,
    probabilities: PerItem | None = None,
    shape: float = 1.0,
    rate: float = 1.0,
) -> Learner:
    """A learner whose ``extra`` is the `Posterior` of w.

    Args:
      name: of the learner.
      base: the features that are no tool's.
      start: of the weights.
      ridge: precision of the prior, > 0; may be traced.
      act: who is shown.
      probabilities: with which each is shown, where it is known.
      shape: of the noise, see `jaxret.learners.bandits.posterior`.
      rate: of the noise.
    """
    require("ridge", ridge, "> 0", lambda x: x > 0)
    rows.require_start(start)

    def init(theta, available=None):
        width = theta.shape[1]
        size = width + 1 + base(theta[:1]).shape[1]
        first = jnp.zeros(size, theta.dtype).at[width].set(1.0 if start == "document" else 0.0)
        return rows.begin(theta, available, posterior.prior(first, ridge, shape, rate))

    def update(state, query, choice, feedback):
        x = features(state.theta[choice.item], query, base)
        new = posterior.observe(state.extra, x, feedback.reward)
        return where_observed(feedback, state, state._replace(extra=new))

    def scores(state, queries):
        return rows.where_available(state, means(state.extra.mean, state.theta, queries, base))

    return Learner(
        name=name,
        init=init,
        act=act,
        update=update,
        logits=None,
        scores=scores,
        structure=CustomStructure(
            map_queries=lambda state, queries: mapped(state.extra.mean, queries)
        ),
        probabilities=probabilities,
    )


def _like(values, cosine):
    return jnp.broadcast_to(values, (*cosine.shape[:-1], values.shape[-1]))
