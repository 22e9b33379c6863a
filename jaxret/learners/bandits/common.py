"""Parts that all bandits share: initial rows, masking, and the assembly of a `Learner`.

    document    the rows begin at Theta_1, the encoded documents: without data the learner ranks
                as static retrieval does
    zero        the rows begin at zero, as in the papers

Letters: I items, d width, N queries.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxret.learners import learner as contract
from jaxret.learners.learner import (
    Acting,
    Learner,
    PerItem,
    Scores,
    Structure,
    Update,
    first_state,
    where_observed,
)
from jaxret.rules import projections
from jaxret.rules.policies import Policy
from jaxret.rules.projections import Projection
from jaxret.runtime.validate import require
from jaxret.types import State

Start: TypeAlias = Literal["document", "zero"]


def bandit(
    name: str,
    *,
    start: Start,
    acting: Acting,
    learn: Update,
    predict: Scores,
    extra: Callable[[Float[Array, "I d"]], Any],
    projection: Projection | None = None,
    logits: PerItem | None = None,
    structure: Structure | None = None,
) -> Learner:
    """Assemble a learner that no rank-one rule describes.

    Args:
      name: name of the learner.
      start: initial rows, 'document' or 'zero'.
      acting: choice of an item.
      learn: update of an observed round; unobserved rounds are skipped here.
      predict: function from queries [N, d] to scores [N, I]; absent items are masked here.
      extra: function from the initial rows [I, d] to the initial ``State.extra``.
      projection: constraint on the initial rows; None: none.
      logits: logits of a softmax over the items; None: the rule has no softmax.
      structure: further rows of the state, and the map of queries; None: ``theta`` holds all rows,
        and queries are not mapped.

    Raises:
      ValueError: if ``start`` is unknown.
    """
    require_start(start)

    def init(theta, available=None):
        theta = theta if start == "document" else jnp.zeros_like(theta)
        theta = projections.project(projection or projections.none(), theta)
        return first_state(theta, available, extra(theta))

    def update(state, query, choice, feedback):
        return where_observed(feedback, state, learn(state, query, choice, feedback))

    def scores(state, queries):
        return where_available(state, predict(state, queries))

    return Learner(
        name=name,
        init=init,
        act=acting.act,
        update=update,
        scores=scores,
        logits=logits,
        probabilities=acting.probabilities,
        structure=structure,
    )


def acting_by(policy: Policy, values: PerItem) -> Acting:
    """Apply a policy to one value per item.

    Args:
      policy: a policy of one item.
      values: state and query [d] -> [I]; absent items are masked here.
    """

    def masked(state, query):
        return where_available(state, values(state, query))

    return contract.acting_by(policy, masked)


def with_start(learner: Learner, start: Start) -> Learner:
    """Let a rank-one learner begin at zero.

    Returns:
      The learner itself for 'document', otherwise a copy with another `init`.
    """
    if start == "document":
        return learner

    def init(theta, available=None):
        return learner.init(jnp.zeros_like(theta), available)

    return learner._replace(init=init, structure=learner.structure)


def default_projection(start: Start) -> Projection:
    """Return the unit sphere for 'document', and no constraint for 'zero'.

    A row of length 0 has no projection onto the sphere.
    """
    return projections.sphere() if start == "document" else projections.none()


def require_start(start: str) -> None:
    """Raise ValueError unless ``start`` is 'document' or 'zero'."""
    require("start", start, "'document' or 'zero'", {"document", "zero"}.__contains__)


def products(queries: Float[Array, "N d"], theta: Float[Array, "I d"]) -> Float[Array, "N I"]:
    """Compute the inner products of queries and rows.

    Use full precision: the faster default of accelerators would round scores into ties.

    Returns:
      [N, I].
    """
    return jnp.matmul(queries, theta.T, precision=lax.Precision.HIGHEST)


def where_available(state: State, values: Float[Array, "*n I"]) -> Float[Array, "*n I"]:
    """Replace the values of absent items by minus infinity.

    Returns:
      [.., I].
    """
    return jnp.where(state.available, values, -jnp.inf)
