"""Parts that all bandits share: the start, masking, and the assembly of a `Learner`.

    document    the rows begin at Theta_1, the encoded documents: without data the learner ranks
                as static retrieval does
    zero        the rows begin at zero, as in the papers
    hybrid      the rows begin at the documents, and all cosines theta_i q have an offset o_i that
                is known before the feedback: without data the learner ranks as
                ``jr.hybrid(lexical=0.25, balance=0.5)`` does

The offset, in units of the cosine, is that of `jaxret.rules.offsets`:

    o_i  =  w / (1 - w) x_i  -  s tau ln m_i        w = 1/4,  s = 1/2,  tau = 0.02 / (1 - w)

with x_i the prior score of the query (the match of words) and m_i the usage of the tool, by the
softmax of the learner's values / tau. A value is the predicted cosine with its offset, without
exploration (bonus or draw): usage counts what the model retrieves, not what is explored. The offset
is a fixed term of a rule's prediction, without learnt parameters; errors and gradients are those of
the prediction with this term. For the usage, a round takes I d products more than with the other
starts.

The bandits `banditron` and `gaptron` take the offsets of `jaxret.learners.offsets`, whose
tau is the rule's own: without data their usage may rank differently.

Letters: I items, d width, N queries.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxret.learners import learner as contract
from jaxret.learners.learner import (
    Acting,
    CustomStructure,
    Facts,
    Learner,
    PerItem,
    Scores,
    Update,
    first_state,
    where_observed,
)
from jaxret.learners.offsets import with_balance, with_lexical
from jaxret.rules import offsets, projections
from jaxret.rules.offsets import Offsets, Usage
from jaxret.rules.policies import Policy
from jaxret.rules.projections import Projection
from jaxret.runtime.validate import require
from jaxret.types import State

Start: TypeAlias = Literal["document", "zero", "hybrid"]

WEIGHT, STRENGTH = 0.25, 0.5  # w and s of 'hybrid', those of the static expert in `default_experts`
TAU = 0.02 / (1.0 - WEIGHT)  # temperature of the rows, in units of the cosine
HYBRID = Offsets(weight=WEIGHT, strength=STRENGTH)


class Known(NamedTuple):
    """One query or many, with what is known of the tools before the feedback.

    Attributes:
      vector: embedding [..., d].
      offset: offset of each tool [..., I] in units of the cosine; 0 unless the start is 'hybrid'.
    """

    vector: Float[Array, "*n d"]
    offset: Float[Array, "*n I"]


class WithUsage(NamedTuple):
    """``State.extra`` of a bandit with the start 'hybrid'.

    Attributes:
      own: what ``State.extra`` is with the other starts.
      usage: usage of the tools.
    """

    own: Any
    usage: Usage


def cosines(state: State, query: Any) -> Float[Array, " I"]:
    """Compute the cosines of one query with all rows, offsets included.

    Args:
      state: state of a rule.
      query: a `Known` query.

    Returns:
      [I].
    """
    return state.theta @ query.vector + query.offset


def cosine_of(state: State, query: Any, item: Int[Array, ""]) -> Float[Array, ""]:
    """Compute the cosine of one query with one row, offset included.

    Args:
      state: state of a rule.
      query: a `Known` query.
      item: the row.

    Returns:
      [].
    """
    return state.theta[item] @ query.vector + query.offset[item]


def cosines_of_all(state: State, queries: Any) -> Float[Array, "N I"]:
    """Compute the cosines of many queries with all rows, offsets included.

    Args:
      state: state of a rule.
      queries: `Known` queries.

    Returns:
      [N, I].
    """
    return products(queries.vector, state.theta) + queries.offset


def bandit(
    name: str,
    *,
    start: Start,
    acting: Acting,
    learn: Update,
    predict: Scores,
    extra: Callable[[Float[Array, "I d"]], Any],
    projection: Projection | None = None,
    values: PerItem = cosines,
    logits: PerItem | None = None,
    structure: CustomStructure | None = None,
) -> Learner:
    """Assemble a learner that no rank-one rule describes.

    The functions of the rule are given `Known` queries, and a state whose ``extra`` is the rule's.

    Args:
      name: name of the learner.
      start: 'document', 'zero' or 'hybrid'.
      acting: choice of an item.
      learn: update of an observed round; unobserved rounds are skipped here.
      predict: function from queries to scores [N, I]; absent items are masked here.
      extra: function from the initial rows [I, d] to what the rule keeps in ``State.extra``.
      projection: constraint on the initial rows; None: none.
      values: predicted cosines [I] of one query, offsets included, from which usage is counted; a
        number that is equal for all items makes no difference.
      logits: logits of a softmax over the items; None: the rule has no softmax.
      structure: further rows of the state, and the map of queries; None: ``theta`` holds all rows,
        and queries are not mapped.

    Raises:
      ValueError: if ``start`` is unknown.
    """
    require_start(start)
    informed = start == "hybrid"

    def init(theta, available=None):
        theta = jnp.zeros_like(theta) if start == "zero" else theta
        theta = projections.project(projection or projections.none(), theta)
        own = extra(theta)
        if informed:
            return first_state(theta, available, WithUsage(own, offsets.first_usage(theta)))
        return first_state(theta, available, own)

    def update(state, query, choice, feedback):
        own, known = _known(state, query)
        new = learn(own, known, choice, feedback)
        if informed:
            retrieved = where_available(own, values(own, known)) / TAU
            usage = offsets.counted(HYBRID, state.extra.usage, retrieved, None)
            new = new._replace(extra=WithUsage(new.extra, usage))
        return where_observed(feedback, state, new)

    def scores(state, queries):
        return where_available(state, predict(*_known(state, queries)))

    return Learner(
        name=name,
        init=init,
        act=lambda state, query, key: acting.act(*_known(state, query), key),
        update=update,
        scores=scores,
        logits=_with_known(logits),
        probabilities=_with_known(acting.probabilities),
        structure=_with_usage(structure) if informed else structure,
        facts=Facts(prior_width=HYBRID.width if informed else 0, prior_required=informed),
    )


def _known(state: State, query: Any) -> tuple[State, Any]:
    """Return the state that a rule is given, and the query or queries as `Known`."""
    if not isinstance(state.extra, WithUsage):
        shape = (*query.shape[:-1], len(state.theta))
        return state, Known(query, jnp.zeros(shape, state.theta.dtype))
    own, usage = state.extra
    words = offsets.dense(query.prior, state.theta[:, 0], None)
    retrieved = jnp.broadcast_to(TAU * offsets.of_usage(HYBRID, usage), words.shape)
    offset = offsets.of_prior(HYBRID, words, 1.0) + retrieved
    return state._replace(extra=own), Known(query.vector, offset)


def _with_known(function: PerItem | None) -> PerItem | None:
    """Let a function of the rule take the state and the query of the learner."""
    if function is None:
        return None
    return lambda state, query: function(*_known(state, query))


def _with_usage(structure: CustomStructure | None) -> CustomStructure | None:
    """Let a structure take states whose ``extra`` is `WithUsage`."""
    if structure is None:
        return None

    def change_rows(state, change):
        own, usage = state.extra
        new = structure.change_rows(state._replace(extra=own), change)
        return new._replace(extra=WithUsage(new.extra, usage))

    def map_queries(state, queries):
        return structure.map_queries(state._replace(extra=state.extra.own), queries)

    return CustomStructure(change_rows, map_queries)


def acting_by(policy: Policy, values: PerItem) -> Acting:
    """Apply a policy to one value per item.

    Args:
      policy: a policy of one item.
      values: state and query -> [I]; absent items are masked here.
    """

    def masked(state, query):
        return where_available(state, values(state, query))

    return contract.acting_by(policy, masked)


def with_start(learner: Learner, start: Start) -> Learner:
    """Let a rank-one learner begin at zero, or with words and usage.

    Returns:
      The learner itself for 'document'; for 'zero' a copy with another `init`; for 'hybrid' one
      with offsets, of the same name.
    """
    if start == "document":
        return learner
    if start == "hybrid":
        known = with_balance(with_lexical(learner, WEIGHT), STRENGTH)
        return known._replace(name=learner.name)

    def init(theta, available=None):
        return learner.init(jnp.zeros_like(theta), available)

    return learner._replace(init=init, structure=learner.structure)


def default_projection(start: Start) -> Projection:
    """Return the unit sphere for rows that begin at documents, and no constraint for 'zero'.

    A row of length 0 has no projection onto the sphere.
    """
    return projections.none() if start == "zero" else projections.sphere()


def require_start(start: str) -> None:
    """Raise ValueError unless ``start`` is 'document', 'zero' or 'hybrid'."""
    require("start", start, "'document', 'zero' or 'hybrid'", get_args(Start).__contains__)


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
