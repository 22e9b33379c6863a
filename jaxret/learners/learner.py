"""The contract of a learner: pure functions over a `State`.

    slate <- act(state, query, key)                  chooses the items to show
    state <- update(state, query, choice, feedback)  learns from the feedback

A query is its vector [d]; for a learner that reads prior scores (``facts.prior_width``) it is a
`jaxret.types.Query`, the vector with the scores. Only oracles are given labels: loss and regret are
measured outside the learner (`jaxret.simulation.scan`). Most learners are rank one and are built by
`jaxret.learners.rank_one`; `jr.check_learner` tests any learner against this contract.

Letters: I items, d width, N queries, k items shown.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxret.rules import offsets
from jaxret.rules.policies import Policy
from jaxret.types import Choice, Feedback, Prior, PRNGKey, Query, Slate, State


class Init(Protocol):
    """Return the first state.

    Args:
      theta: item embeddings [I, d].
      available: mask of the items that can be shown [I]; None: all items.
    """

    def __call__(
        self, theta: Float[Array, "I d"], available: Bool[Array, " I"] | None = None
    ) -> State: ...


class Act(Protocol):
    """Choose the items to show, with their propensities.

    Args:
      state: state of the learner.
      query: embedding [d], or a `jaxret.types.Query` if ``facts.prior_width`` is not 0.
      key: consumed.
    """

    def __call__(self, state: State, query: Float[Array, " d"], key: PRNGKey) -> Slate: ...


class Update(Protocol):
    """Return the next state; ``t`` grows by one even if no feedback was observed.

    Args:
      state: state in which the slate was shown.
      query: embedding [d], or a `jaxret.types.Query` if ``facts.prior_width`` is not 0.
      choice: item that was used, and its propensity.
      feedback: reward, whether it was observed, and the labels if the learner is an oracle.
    """

    def __call__(
        self, state: State, query: Float[Array, " d"], choice: Choice, feedback: Feedback
    ) -> State: ...


class PerItem(Protocol):
    """Return one number per item, [I]: its logit, or the probability that it is shown.

    Args:
      state: state of the learner.
      query: embedding [d], or a `jaxret.types.Query` if ``facts.prior_width`` is not 0.
    """

    def __call__(self, state: State, query: Float[Array, " d"]) -> Float[Array, " I"]: ...


class Scores(Protocol):
    """Return the scores [N, I] that rank items, minus infinity where an item is absent.

    Args:
      state: state of the learner.
      queries: embeddings [N, d], or a `jaxret.types.Query` if ``facts.prior_width`` is not 0.
    """

    def __call__(self, state: State, queries: Float[Array, "N d"]) -> Float[Array, "N I"]: ...


ChangeRows = Callable[[Float[Array, "I d"]], Float[Array, "I d"]]


class Structure(Protocol):
    """The construction of a learner, for code that uses more than its functions.

    Structures are `jaxret.learners.rank_one.Rule`, `jaxret.learners.replay.Replay`,
    `jaxret.learners.minibatch.Batches`, `jaxret.learners.mixture.Blend` and
    `jaxret.learners.wrappers.Wrapped`. Learners whose structures differ only in numbers share a
    compiled program.
    """

    def change_rows(self, state: State, change: ChangeRows, /) -> State:
        """Apply a function [I, d] -> [I', d] to every matrix of item rows in a state."""
        ...

    def map_queries(self, state: State, queries: Float[Array, "N d"], /) -> Float[Array, "N d"]:
        """Map queries to the vectors that are multiplied with the rows.

        Returns:
          [N, d].
        """
        ...


class CustomStructure(NamedTuple):
    """The structure of a learner with rows beside Theta, or a map of queries.

    Attributes:
      change_rows: (state, change) -> state with the change applied to every matrix of rows.
      map_queries: (state, queries [N, d]) -> mapped queries [N, d].
    """

    change_rows: Callable[[State, ChangeRows], State] = lambda s, change: s._replace(
        theta=change(s.theta)
    )
    map_queries: Callable[[State, Array], Array] = lambda state, queries: queries


class Facts(NamedTuple):
    """Facts about a learner that do not depend on its state.

    Attributes:
      oracle: whether `update` is given the labels.
      prior_width: K, prior scores per query that the learner reads; its functions are then given a
        `jaxret.types.Query` in place of a vector. 0: it reads vectors alone.
      prior_required: whether the learner refuses a task without prior scores.
      origin: name of the preset that made the learner, and the settings as JSON, from which
        `jaxret.serving.files` restores the learner; None if no preset made it.
    """

    oracle: bool = False
    prior_width: int = 0
    prior_required: bool = False
    origin: tuple[str, str] | None = None


class _Fields(NamedTuple):
    name: str
    init: Init
    act: Act
    update: Update
    scores: Scores
    logits: PerItem | None = None
    probabilities: PerItem | None = None
    structure: Structure | None = None
    facts: Facts = Facts()


FUNCTIONS = ("init", "act", "update", "scores", "logits", "probabilities")


class Learner(_Fields):
    """A learner: pure functions, and facts about them.

    Attributes:
      name: name in tables and figures.
      init: (theta [I, d], available [I] or None) -> the first `State`.
      act: (state, query [d], key) -> the `Slate` to show.
      update: (state, query [d], choice, feedback) -> the next `State`, with ``t + 1``.
      scores: (state, queries [N, d]) -> scores [N, I] that rank items.
      logits: (state, query [d]) -> logits [I] of the learner's softmax model; None for a learner
        without a softmax, which has no loss, regret or bounds.
      probabilities: (state, query [d]) -> probability [I] that `act` shows each item first; None if
        unknown, in which case off-policy evaluation and guards refuse the learner.
      structure: construction of the functions, for the blocked form of a simulation, which runs the
        same rounds faster; None: unknown, and the simulation uses the plain scan.
      facts: whether `update` is given the labels (``oracle``), and the preset and settings that
        made the learner (``origin``).
    """

    __slots__ = ()

    def _replace(self, **changes: Any) -> "Learner":
        """Return a copy with some fields replaced.

        A copy with another function loses `structure`, which no longer describes it, unless
        ``structure`` is given too. A copy with another function or structure also loses
        ``facts.origin``.
        """
        if any(name in changes for name in (*FUNCTIONS, "structure")):
            facts = changes.get("facts", self.facts)
            changes = {"structure": None, **changes, "facts": facts._replace(origin=None)}
        return super()._replace(**changes)


def change_rows(learner: Learner, state: State, change: ChangeRows) -> State:
    """Apply a function to every matrix of item rows in a state.

    Args:
      learner: learner of the state.
      state: any state of the learner.
      change: function from rows [I, d] to rows [I', d].
    """
    if learner.structure is None:
        return state._replace(theta=change(state.theta))
    return learner.structure.change_rows(state, change)


def without_past(state: State, items: Bool[Array, " I"]) -> State:
    """Erase all that a state has counted or stored about some items; keep their rows.

    A part of `State.extra` that holds such a record, like `jaxret.rules.offsets.Usage` or
    `jaxret.learners.memory.Memory`, has a method ``without``: it takes a mask of items [I] and
    returns the part as if these items had never been shown.

    Args:
      state: any state.
      items: mask of the items that are forgotten [I].
    """

    def forgets(part):
        return hasattr(part, "without")

    def forget(part):
        return part.without(items) if forgets(part) else part

    return state._replace(extra=jax.tree.map(forget, state.extra, is_leaf=forgets))


def map_queries(
    learner: Learner, state: State, queries: Float[Array, "N d"]
) -> Float[Array, "N d"]:
    """Map queries to the vectors that are multiplied with the rows.

    Args:
      learner: learner of the state.
      state: any state of the learner.
      queries: [N, d].

    Returns:
      [N, d]; the queries themselves if the learner has no query map.
    """
    if learner.structure is None:
        return queries
    return learner.structure.map_queries(state, queries)


def first_state(
    theta: Float[Array, "I d"], available: Bool[Array, " I"] | None, extra: Any = ()
) -> State:
    """Return the state before the first round.

    Args:
      theta: initial rows [I, d].
      available: mask of the items that can be shown [I]; None: all items.
      extra: further parameters of the learner.
    """
    available = jnp.ones(len(theta), bool) if available is None else available
    return State(theta=theta, available=available, t=jnp.zeros((), jnp.int32), extra=extra)


def vector_of(query: Float[Array, "*n d"] | Query) -> Float[Array, "*n d"]:
    """Return the vector of a query that may have a prior.

    Returns:
      [..., d].
    """
    return query.vector if isinstance(query, Query) else query


def query_for(learner: Learner, query: Any, prior: Prior | None = None) -> Any:
    """Return queries in the form that a learner reads.

    Args:
      learner: any learner.
      query: vector [d], vectors [n, d], or queries that already have a prior.
      prior: prior scores of the same queries; None: those of ``query``, or no scores.

    Returns:
      The vectors, or a `jaxret.types.Query` if the learner reads priors.
    """
    vector = vector_of(query)
    if not learner.facts.prior_width:
        return vector
    if isinstance(query, Query) and prior is None:
        prior = query.prior
    return Query(vector, offsets.padded(prior, vector.shape[:-1], learner.facts.prior_width))


def prior_for(learner: Learner, task: Any) -> Prior | None:
    """Return the prior of a task's queries in the form that a learner reads.

    Args:
      learner: any learner.
      task: a `jaxret.task.Task`.

    Returns:
      A prior with fields [N, K], without scores if the task has none; None if the learner reads
      vectors alone.

    Raises:
      ValueError: if the learner needs prior scores and there are none, or there are more per query
        than it reads.
    """
    facts = learner.facts
    if not facts.prior_width:
        return None
    prior = task.prior
    if facts.prior_required and prior is None:
        raise ValueError(
            f"learner {learner.name!r} reads prior scores, and {task.name} has none: give "
            "Task.from_arrays(texts=, documents=) or (prior=), or load_task(lexical=True)"
        )
    require_prior_width(learner, prior, task.name)
    return offsets.padded(prior, (len(task),), facts.prior_width)


def require_learner(learner: Any) -> None:
    """Raise ValueError unless the argument is a learner; a preset must be called to make one."""
    if isinstance(learner, Learner):
        return
    name = getattr(learner, "__name__", type(learner).__name__)
    if callable(learner):
        raise ValueError(f"learner must be a learner, got the function {name}: call it, {name}()")
    raise ValueError(f"learner must be a learner, such as jr.greedy(), got {name}")


def require_prior_width(learner: Learner, prior: Prior | None, source: str) -> None:
    """Refuse more prior scores per query than a learner reads.

    Args:
      learner: any learner.
      prior: prior of any number of queries, fields [..., K]; None: no scores.
      source: name of what has the prior, for the message.

    Raises:
      ValueError: if K is too large.
    """
    width, most = learner.facts.prior_width, 0 if prior is None else prior.items.shape[-1]
    if width and most > width:
        raise ValueError(
            f"{source} has up to {most} prior scores per query, and learner {learner.name!r} reads "
            f"{width}: give width={most} to with_lexical or to the preset"
        )


class Acting(NamedTuple):
    """The `act` of a learner, and the probability of each choice."""

    act: Act
    probabilities: PerItem | None  # None: they have no closed form


def acting_by(policy: Policy, logits: PerItem) -> Acting:
    """Apply a policy to the logits of a learner."""
    of_logits = policy.probabilities

    def act(state, query, key):
        return policy.show(key, logits(state, query), None)

    def probabilities(state, query):
        assert of_logits is not None
        return of_logits(logits(state, query))

    return Acting(act, None if of_logits is None else probabilities)


def where_observed(feedback: Feedback, state: State, new: State) -> State:
    """Select the new state if feedback was observed, else the old one; ``t + 1`` either way.

    Args:
      feedback: feedback of the round.
      state: state before the round.
      new: state after an update by the feedback.
    """
    after = state._replace(t=state.t + 1)
    new = new._replace(t=after.t)
    if feedback.observed is True:
        return new
    return jax.tree.map(lambda x, y: jnp.where(feedback.observed, x, y), new, after)
