"""Wrappers: learners made from other learners.

    with_query_map(greedy(), rate=3.0)                  also learns a map of the queries
    with_preconditioner(greedy(), by_row())             changes the length or direction of steps
    with_exploration(greedy(), epsilon=0.05)            shows a random item in a share of the rounds
    with_confidence(greedy())                           also calibrates each item's probability
    abstaining(mixture(), at_least=0.5)                 shows nothing below that probability

`jaxret.learners.replay.with_experience_replay`, `jaxret.learners.offsets.with_lexical` and
``with_balance``, `jaxret.learners.memory.with_memory`, `jaxret.learners.confidence.with_confidence`
and ``abstaining``, and `jaxret.learners.guarded.guarded` are wrappers in files of their own.
Wrappers compose; experience replay must come after a query map or a preconditioner, which need a
rank-one learner, and a memory after both, but before exploration or a guard. A query map that is
updated once in B rounds (``map_every``, a multiple of 8) keeps the blocked form, and so do
preconditioning by row and experience replay (`jaxret.simulation.blocked.simulate`).

Letters: I items, d width.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec

import jax
from jaxtyping import Array, Float

from jaxret.learners import learner as contract
from jaxret.learners.learner import ChangeRows, Learner, PerItem, require_learner
from jaxret.learners.rank_one import Rule, from_rule, rule_of
from jaxret.rules import policies, query_maps
from jaxret.rules.preconditioners import Preconditioner
from jaxret.rules.query_maps import QueryMap
from jaxret.runtime.memo import memoized
from jaxret.runtime.validate import require
from jaxret.types import State

P = ParamSpec("P")


class Wrapped(NamedTuple):
    """The structure of a learner around another one.

    Attributes:
      inner: inner learner.
      unwrap: state -> state of the inner learner.
      rewrap: (state, new state of the inner learner) -> new state.
      own_rows: (state, change) -> state with the change applied to the wrapper's own rows; None:
        the wrapper has none.
      confidence: (state, query) -> probability [I] that each item works, calibrated by the wrapper
        (`jaxret.learners.confidence`); None: that of the inner learner, if it has one.
      wraps: function that wraps another learner with the same settings, the same object for equal
        settings; None: unknown.
    """

    inner: Learner
    unwrap: Callable[[State], State]
    rewrap: Callable[[State, State], State]
    own_rows: Callable[[State, ChangeRows], State] | None = None
    confidence: PerItem | None = None
    wraps: Callable[[Learner], Learner] | None = None

    def change_rows(self, state: State, change: ChangeRows) -> State:
        """Apply a function [I, d] -> [I', d] to the rows of both learners."""
        new = contract.change_rows(self.inner, self.unwrap(state), change)
        state = state if self.own_rows is None else self.own_rows(state, change)
        return self.rewrap(state, new)

    def map_queries(self, state: State, queries: Float[Array, "N d"]) -> Float[Array, "N d"]:
        """Map queries to the vectors that are multiplied with the inner learner's rows.

        Returns:
          [N, d].
        """
        return contract.map_queries(self.inner, self.unwrap(state), queries)


def wrapper(make: Callable[Concatenate[Learner, P], Learner]):
    """Decorate a function that wraps a learner, so that a second call compiles nothing.

    Equal calls return the same learner, and learners that differ only in the numbers of the inner
    learner share their programs (`jaxret.learners.grid.traced`).

    Args:
      make: function of a learner and settings.

    Raises:
      ValueError: when the decorated function is called, if its first argument is not one.
    """
    signature = inspect.signature(make)

    @functools.wraps(make)
    def made(learner: Learner, *args: P.args, **settings: P.kwargs) -> Learner:
        require_learner(learner)
        new = make(learner, *args, **settings)
        if not isinstance(new.structure, Wrapped):
            return new
        _, *given = signature.bind(learner, *args, **settings).arguments.items()
        return new._replace(structure=new.structure._replace(wraps=_wraps(make, **dict(given))))

    return memoized(made)


@memoized
def _wraps(make: Callable[..., Learner], **given: Any) -> Callable[[Learner], Learner]:
    return lambda learner: make(learner, **given)


def wrap(
    inner: Learner,
    name: str,
    *,
    unwrap: Callable[[State], State] = lambda state: state,
    rewrap: Callable[[State, State], State] = lambda state, new: new,
    own_rows: Callable[[State, ChangeRows], State] | None = None,
    confidence: PerItem | None = None,
    **changes: Any,
) -> Learner:
    """Build a learner that forwards to another learner all fields that are not replaced.

    Args:
      inner: inner learner.
      name: name of the learner in tables.
      unwrap: state -> state of the inner learner.
      rewrap: (state, new state of the inner learner) -> new state.
      own_rows: (state, change) -> state with the change applied to the wrapper's own rows; None:
        the wrapper has none.
      confidence: (state, query) -> calibrated probability [I] that each item works; None: that of
        the inner learner.
      **changes: fields of the new learner (``init``, ``act``, ``update``, ..).
    """

    def forward(function):
        if function is None:
            return None
        return lambda state, *args: function(unwrap(state), *args)

    def update(state, *args):
        return rewrap(state, inner.update(unwrap(state), *args))

    fields: dict[str, Any] = {
        "init": inner.init,
        "act": forward(inner.act),
        "update": update,
        "scores": forward(inner.scores),
        "logits": forward(inner.logits),
        "probabilities": forward(inner.probabilities),
        "structure": Wrapped(inner, unwrap, rewrap, own_rows, confidence),
        "facts": inner.facts._replace(origin=None),
    }
    return Learner(name=name, **{**fields, **changes})


def innermost(learner: Learner, state: State) -> tuple[Learner, State]:
    """Remove all wrappers from a learner and its state."""
    while isinstance(learner.structure, Wrapped):
        learner, state = learner.structure.inner, learner.structure.unwrap(state)
    return learner, state


def with_query_map(
    learner: Learner, query_map: QueryMap | None = None, *, rate: float = 3.0, map_every: int = 1
) -> Learner:
    """Add a query map to a rank-one learner.

    Args:
      learner: learner from `rank_one` or a preset, without experience replay.
      query_map: map from `jaxret.rules.query_maps`; None: `query_maps.linear`.
      rate: relative step size of the linear map, > 0; ignored if a map is given.
      map_every: B >= 1, rounds between two updates of the map; rows are updated every round.

    Raises:
      ValueError: if the learner is not rank one, or has a query map.
    """
    require("map_every", map_every, "a whole number >= 1", lambda n: isinstance(n, int) and n >= 1)
    query_map = query_map or query_maps.linear(rate=rate)
    rule = _rule(learner, "a query map")
    if rule.query_map is not None:
        raise ValueError(
            f"learner {learner.name!r} already has the query map {rule.query_map.name!r}: give one"
        )
    rule = rule._replace(query_map=query_map, map_every=map_every)
    return from_rule(f"{learner.name}+{query_map.name}", rule)


def with_preconditioner(learner: Learner, preconditioner: Preconditioner) -> Learner:
    """Precondition the steps of a rank-one learner.

    Args:
      learner: learner from `rank_one` or a preset, without experience replay.
      preconditioner: preconditioner from `jaxret.rules.preconditioners`.

    Raises:
      ValueError: if the learner is not rank one, or has a preconditioner.
    """
    rule = _rule(learner, "a preconditioner")
    if (first := rule.preconditioner) is not None:
        raise ValueError(
            f"learner {learner.name!r} already has the preconditioner {first.name!r}: give one"
        )
    name = f"{learner.name}+{preconditioner.name}"
    return from_rule(name, rule._replace(preconditioner=preconditioner))


@wrapper
def with_exploration(learner: Learner, epsilon: float = 0.05) -> Learner:
    """Show a uniformly drawn item in a share of the rounds, with exact propensities.

    The log of a policy that always shows its best item cannot be used to evaluate other policies;
    exploration makes this possible.

    Args:
      learner: any learner that shows one item per round and has `Learner.probabilities`.
      epsilon: share of the rounds, in [0, 1].

    Raises:
      ValueError: if the learner has no `Learner.probabilities`.
    """
    require("epsilon", epsilon, "in [0, 1]", lambda x: 0 <= x <= 1)
    name = f"{learner.name}+exploration"
    if (rule := rule_of(learner)) is not None:  # as a policy, which keeps the blocked form
        policy = policies.exploring(rule.policy, epsilon=epsilon)
        return from_rule(name, rule._replace(policy=policy))
    if (inner_probabilities := learner.probabilities) is None:
        raise ValueError(
            f"learner {learner.name!r} does not give the probability of each item: exploration "
            "needs `Learner.probabilities` for its propensities"
        )

    def probabilities(state, query):
        own = inner_probabilities(state, query)
        available = state.available.astype(own.dtype)
        return (1 - epsilon) * own + epsilon * available / available.sum()

    def act(state, query, key):
        coin, lot, key = jax.random.split(key, 3)
        slate = learner.act(state, query, key)
        p = probabilities(state, query)
        return policies.explored(coin, lot, slate, p, state.available, epsilon, None)

    return wrap(learner, name, act=act, probabilities=probabilities)


def _rule(learner: Learner, what: str) -> Rule:
    require_learner(learner)
    if (rule := rule_of(learner)) is None:
        raise ValueError(
            f"learner {learner.name!r} is not rank one: {what} needs the parts of a rank-one "
            "learner (give it before experience replay, not after)"
        )
    return rule
