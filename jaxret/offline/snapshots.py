"""Frozen learners as policies, and learners updated from a log.

    Snapshot(run.learner, run.state(0))      a learner frozen in a state
    frozen()                                 a learner in its first state, on the log's catalogue
    probabilities [T, I]                     for any other policy

    warm = warm_start(log, greedy())         a `Snapshot`, after an update for every round
    log = with_probabilities(log, orag())    adds the probabilities of the serving learner

A policy must not have learned from the rounds on which it is evaluated.

Letters: I items, d width, T rounds, n rounds processed together.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.learners.learner import (
    Learner,
    PerItem,
    query_for,
    require_prior_width,
)
from jaxret.learners.rank_one import rule_of
from jaxret.logs import Log, take
from jaxret.offline.checked import SCALE, checked, require_items, require_probabilities
from jaxret.offline.lists import without_rest
from jaxret.runtime.validate import real_numbers, require
from jaxret.types import Choice, Feedback, State

BATCH = 256  # queries or rounds of one program call
CLOSE = 2e-3  # relative difference of float32 probabilities between two forms of a run


class Snapshot(NamedTuple):
    """A learner frozen in a state, as a policy to evaluate or to serve.

    Attributes:
      learner: learner, which is not updated.
      state: state in which the learner is frozen.
    """

    learner: Learner
    state: State


PolicyLike: TypeAlias = Learner | Snapshot | ArrayLike | Sequence[Sequence[float]]


class Target(NamedTuple):
    """A policy as functions of a slice of rounds; each returns [n, I] in float64."""

    #: probability that each tool is shown (first)
    probabilities: Callable[[slice], Float[np.ndarray, "n I"]]
    scores: Callable[[slice], Float[np.ndarray, "n I"]] | None  # None: the policy has no scores


def snapshot(log: Log, learner: Learner | Snapshot) -> Snapshot:
    """Return a snapshot of a learner in its first state, on the rows of the log's catalogue.

    Args:
      log: log that was loaded with its task.
      learner: a learner, or a snapshot, which is returned unchanged.

    Raises:
      ValueError: if the log has no rows for the learner or the rows of other tools, or this is no
        learner.
    """
    if isinstance(learner, Snapshot):
        require_items(log, f"the snapshot of {learner.learner.name!r}", len(learner.state.theta))
        return learner
    if not isinstance(learner, Learner):
        raise ValueError(
            f"a learner or Snapshot(run.learner, run.state(0)) is needed, got "
            f"{type(learner).__name__}"
        )
    if log.theta is None:
        raise ValueError(
            f"learner {learner.name!r} has no rows to begin from: read the log with its task, or "
            "give a Snapshot"
        )
    return Snapshot(learner, jax.jit(learner.init)(log.theta, log.available))


def policy_of(log: Log, policy: PolicyLike) -> Snapshot | Float[np.ndarray, "T I"]:
    """Return a policy as a snapshot or as an array of probabilities.

    Args:
      log: checked log.
      policy: a snapshot, a learner in its first state, or probabilities [T, I] as an array of NumPy
        or JAX or as lists.

    Returns:
      a snapshot, or the probabilities [T, I].

    Raises:
      ValueError: if it is none of these, or does not fit the rounds and tools of the log.
    """
    if isinstance(policy, Learner | Snapshot):
        return snapshot(log, policy)
    try:
        rows = real_numbers("the probabilities [T, I]", policy, 2)
    except ValueError as error:
        raise ValueError(
            "policy must be a learner, Snapshot(run.learner, run.state(0)) or probabilities "
            f"[{log.rounds}, I], got {type(policy).__name__}: {error}"
        ) from error
    allowed = f"[{log.rounds}, I]"
    require("the probabilities' shape", rows.shape, allowed, lambda x: x[0] == log.rounds)
    require_items(log, "the policy", rows.shape[1])
    return rows


def target(log: Log, policy: PolicyLike) -> Target:
    """Convert a policy to functions of the rounds of a log.

    Args:
      log: log with the queries.
      policy: a snapshot, a learner in its first state, or probabilities [T, I] (`policy_of`).

    Raises:
      ValueError: if a learner has no probabilities, or the rows of an array are not probabilities.
    """
    found = policy_of(log, policy)
    if not isinstance(found, Snapshot):
        require_probabilities("the probabilities", found, log, close=1e-4)
        return Target(lambda part: found[part].astype(np.float64), scores=None)
    learner, state = found
    functions: tuple[Any, Any] = first_probabilities(learner), learner.scores
    queries: Any = queries_of(log, learner)
    if log.sets is None:
        probabilities = _in_batches(_each(functions[0]), state, queries)
        scores = _in_batches(_all(functions[1]), state, queries)
    else:
        assert log.shown_from is not None
        queries, serving = (queries, log.shown_from[:, None]), (state, _sets(log, state))
        probabilities = _in_batches(_each(_of_sets(functions[0], False)), serving, queries)
        scores = _in_batches(_each(_of_sets(functions[1], True)), serving, queries)

    def normalised(part):
        rows = probabilities(part)
        return rows / rows.sum(axis=1, keepdims=True)  # float32 sums to 1 in 6 digits

    return Target(probabilities=normalised, scores=scores)


def first_probabilities(learner: Learner) -> PerItem:
    """Return the function for the probability that each tool is shown (first).

    Raises:
      ValueError: if the learner has no probabilities.
    """
    if learner.probabilities is not None:
        return learner.probabilities
    rule = rule_of(learner)
    drawn_from = None if rule is None else rule.policy.drawn_from
    logits = learner.logits
    if drawn_from is None or logits is None:
        raise ValueError(
            f"learner {learner.name!r} does not give the probability of each tool: a log cannot "
            "evaluate it without `Learner.probabilities`"
        )
    return lambda state, query: drawn_from(logits(state, query))


@lru_cache(maxsize=64)  # a study evaluates the same learners on many logs
def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.vmap(function, (None, 0)))


_all = lru_cache(maxsize=64)(jax.jit)


@lru_cache(maxsize=64)
def _of_sets(function: Callable[..., Any], several: bool) -> Callable[..., Any]:
    """Adapt a function of one or n queries to one query with the index of its allowed set."""

    def of(serving, placed):
        (state, sets), (query, place) = serving, placed
        state = state._replace(available=sets[place[0]])
        if several:
            return function(state, jax.tree.map(lambda x: x[None], query))[0]
        return function(state, query)

    return of


def _sets(log: Log, state: State) -> Any:
    """Return the sets of a log, for the rows of a state, which may have spare ones [M, I]."""
    assert log.sets is not None
    spare = len(state.available) - log.sets.shape[1]
    require("the state's tools", len(state.available), "those of the log", lambda _: spare >= 0)
    return np.pad(log.sets, ((0, 0), (0, spare)))


def queries_of(log: Log, learner: Learner) -> Any:
    """Return the queries of a log in the form that a learner reads, with leading axis T.

    Raises:
      ValueError: if the learner needs prior scores and the log has none, or more per query than it
        reads.
    """
    if learner.facts.prior_required and log.prior is None:
        raise ValueError(
            f"learner {learner.name!r} reads prior scores, and the log has none: read it with a "
            "task that has them, load_log(path, task)"
        )
    require_prior_width(learner, log.prior, "the log")
    return jax.tree.map(np.asarray, query_for(learner, log.query, log.prior))


def _in_batches(
    rows: Callable[..., Any], state: Any, queries: Any
) -> Callable[[slice], Float[np.ndarray, "n I"]]:
    """Evaluate a function of queries in batches of one shape."""

    items = len(jax.tree.leaves(state)[0])  # of theta, the first field

    def padded(rows):
        return np.pad(rows, ((0, BATCH - len(rows)), (0, 0)))

    def of(part: slice) -> np.ndarray:
        own = jax.tree.map(lambda x: x[part], queries)
        found, count = [], len(jax.tree.leaves(own)[0])
        for first in range(0, count, BATCH):
            last = min(count, first + BATCH)
            batch = jax.tree.map(lambda x, some=slice(first, last): padded(x[some]), own)
            found.append(np.asarray(rows(state, batch), np.float64)[: last - first])
        return np.concatenate(found) if found else np.zeros((0, items))

    return of


def warm_start(
    log: Log, learner: Learner | Snapshot, *, scale: tuple[float, float] = SCALE
) -> Snapshot:
    """Update a learner with every answered round of a log, in the order of the log.

    The tools of the log were chosen by another learner. Updates that divide by the propensity or
    follow the likelihood of the reward remain valid; updates that assume tools drawn from the
    learner's own probabilities (`chosen_only`) are biased.

    Args:
      log: log with the rounds.
      learner: a learner, which starts at the rows of the log's task; or a snapshot, which continues
        from its state.
      scale: lowest and highest possible reward of the log; the learner sees rewards of 0 to 1.

    Returns:
      The learner in its state after the log.

    Raises:
      ValueError: if the learner is an oracle, or needs propensities that the log lacks, or a field
        of the log is out of its range, as a reward that is not on the scale.
    """
    log = checked(log, scale)
    start = snapshot(log, learner)
    if start.learner.facts.oracle:
        raise ValueError(f"learner {start.learner.name!r} is an oracle: a log has no labels for it")
    update: Any = start.learner.update
    go_through, state = _going_through(update), start.state
    for first in range(0, log.rounds, BATCH):
        state, _ = go_through(state, _rounds(take(log, slice(first, first + BATCH)), start))
    if np.isnan(np.asarray(state.theta)).any():
        raise ValueError(
            f"learner {start.learner.name!r} came to rows that are not numbers: it needs "
            "propensities that the log does not have, or smaller steps"
        )
    return Snapshot(start.learner, state)


def with_probabilities(log: Log, served: Learner | Snapshot) -> Log:
    """Add the probabilities of all tools in each round to a log that has those of the used tools.

    The serving learner is updated by its log again, which restores its state in each round. Doubly
    robust intervals and marginalised weights need these probabilities, [T, I] in float32 in memory.
    ``by_position`` is computed from them and differs from the log's by rounding.

    Args:
      log: log of one tool per round, whose learner learned from each round before the next, or
        never.
      served: learner that wrote the log, in its state before the first of these rounds.

    Returns:
      The log with ``probabilities`` [T, I].

    Raises:
      ValueError: if the log has slates or answers out of order, or the probabilities differ from
        the log's, because another learner wrote the log or the learner started in another state.
    """
    log = checked(log)
    require("the rounds of the log", log.rounds, ">= 1", lambda n: n >= 1)
    start = snapshot(log, served)
    name = start.learner.name
    probabilities: Any = first_probabilities(start.learner)
    log = without_rest(log)
    if log.slate.shape[1] > 1:
        raise ValueError(
            f"the log has slates of {log.slate.shape[1]}: probabilities are known for one"
        )
    steps = np.diff(log.version)
    learns = bool((steps == 1).all()) and len(steps) > 0
    if (not learns and steps.any()) or (log.version < 0).any():
        raise ValueError(
            f"{name!r} did not learn from each round before the next, as its versions say: what "
            "it knew in a round cannot be worked out again"
        )

    update: Any = start.learner.update if learns else None
    go_through, state, found = _going_through(update, probabilities), start.state, []
    for first in range(0, log.rounds, BATCH):
        some = take(log, slice(first, first + BATCH))
        state, p = go_through(state, _rounds(some, start))
        found.append(np.asarray(p))
    every = np.concatenate(found)
    used = every[np.arange(log.rounds), log.item].astype(np.float64)
    off = abs(used - log.by_position[:, 0]) > CLOSE * log.by_position[:, 0]
    if off.any():
        t = int(off.argmax())
        raise ValueError(
            f"round {log.round[t]} has the propensity {log.by_position[t, 0]:.4g}, {name!r} would "
            f"have had {used[t]:.4g} ({off.sum()} such): it did not write this log, or began from "
            "another state"
        )
    return log._replace(probabilities=every, by_position=used[:, None])


@lru_cache(maxsize=64)  # a study warms the same learners on many logs
def _going_through(
    update: Callable[..., Any] | None, probabilities: Callable[..., Any] | None = None
) -> Callable[..., tuple[State, Any]]:
    """Compile the updates of a batch of rounds, and the probabilities before each; None: none."""

    @jax.jit
    def go_through(state, rounds):
        def step(state, one):
            p = probabilities and probabilities(_shown_from(state, *one[4:]), one[0])
            return state if update is None else _updated(update, state, *one), p

        return lax.scan(step, state, rounds)

    return go_through


def _rounds(log: Log, start: Snapshot) -> tuple[Any, ...]:
    """Return queries, choices, rewards and whether each round was answered, as JAX arrays.

    They are followed by the tools that could be shown [n, I], if these are not always the same.
    """
    answered = ~np.isnan(log.reward)
    choice = Choice(
        item=jnp.asarray(log.item, jnp.int32), propensity=jnp.asarray(log.propensity, jnp.float32)
    )
    reward = np.where(answered, log.reward, 0).astype(np.float32)
    queries = jax.tree.map(jnp.asarray, queries_of(log, start.learner))
    rounds = queries, choice, jnp.asarray(reward), jnp.asarray(answered)
    if log.sets is None:
        return rounds
    return *rounds, jnp.asarray(_sets(log, start.state)[log.shown_from])


def _shown_from(state: State, *available: Any) -> State:
    return state._replace(available=available[0]) if available else state


def _updated(
    update, state: State, query, choice: Choice, reward, answered, *available: Any
) -> State:
    feedback = Feedback(reward=reward, observed=answered)
    new = update(_shown_from(state, *available), query, choice, feedback)
    return _shown_from(new, state.available) if available else new
