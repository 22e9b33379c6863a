"""Logs whose truth is known: queries drawn from a task, logging policies and judged policies.

    world, apart = task.split((0.5, 0.5), seed=0)
    policy = judged(jr.Snapshot(learner, state), world)        its value is a mean over the queries
    for made in logs(serves, world, rounds=2_000, seeds=range(100)):
        evaluate(made.log, aim(policy, made.query), name="policy")

Queries are drawn independently and uniformly, so all logs share one truth: the mean of the policy's
success over the queries of the task.

Letters: N queries, I items, d width, T rounds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Int

import jaxret as jr
from experiments.common.learners import learner_grid
from jaxret.logs import Log
from jaxret.offline.off_policy import groups_of_rows
from jaxret.offline.snapshots import Target, first_probabilities, target

TOGETHER = 25  # logs simulated at once by one program


class Judged(NamedTuple):
    """A frozen policy on every query of a task."""

    probabilities: Float[np.ndarray, "N I"]  # probability that each tool is shown
    scores: Float[np.ndarray, "N I"]
    groups: Int[np.ndarray, " I"]  # groups of its rows, for MIPS
    value: float  # mean success over all queries


class Made(NamedTuple):
    """A log, and the position of the query of each round."""

    log: Log
    query: Int[np.ndarray, " T"]


def policy(name: str, spec: Mapping[str, Any]) -> jr.Learner:
    """Make a learner from the settings of its preset, and two more.

    Args:
      name: name of the learner.
      spec: ``preset`` and its settings; ``epsilon``, the share of rounds in which a uniformly drawn
        tool is shown; ``learns``, false for a learner that stays in its first state.
    """
    settings = dict(spec)
    epsilon, learns = settings.pop("epsilon", None), settings.pop("learns", True)
    learner = learner_grid(name, settings).learner(0)
    if epsilon is not None:
        learner = jr.with_exploration(learner, epsilon)
    if not learns:
        learner = learner._replace(update=_learns_nothing)
    return learner._replace(name=name)


def learnt(learner: jr.Learner, task: jr.Task, exposures: int, seed: int) -> jr.Snapshot:
    """Return a learner after some exposures of a task; after none, in its first state."""
    if not exposures:
        return jr.Snapshot(learner, learner.init(jnp.asarray(task.theta)))
    run = jr.simulate(learner, task, exposures=exposures, seeds=[seed])
    return jr.Snapshot(learner, run.state(seed))


def judged(snapshot: jr.Snapshot, task: jr.Task) -> Judged:
    """Compute what a frozen policy does for every query, and its value."""
    found = _for_every_query(snapshot, task)
    assert found.scores is not None  # learners have scores
    return Judged(
        probabilities=found.probabilities(slice(None)),
        scores=found.scores(slice(None)),
        groups=groups_of_rows(np.asarray(snapshot.state.theta)),
        value=value(snapshot, task),
    )


def value(snapshot: jr.Snapshot, task: jr.Task) -> float:
    """Return the success of a frozen policy, the mean over all queries."""
    probabilities = _for_every_query(snapshot, task).probabilities(slice(None))
    return float((probabilities * right(task)).sum(axis=1).mean())


def _for_every_query(snapshot: jr.Snapshot, task: jr.Task) -> Target:
    n = len(task)
    zeros, ones = np.zeros(n), np.ones(n)
    return target(_log(task, np.arange(n), zeros.astype(int), ones, zeros, ones[:, None]), snapshot)


def right(task: jr.Task) -> Float[np.ndarray, "N I"]:
    """Return 1 where a tool is right for a query, else 0, [N, I]."""
    found = np.zeros((len(task), len(task.ids) + 1))  # padding goes to an extra column
    found[np.arange(len(task))[:, None], task.labels] = 1
    return found[:, :-1]


def aim(policy: Judged, query: Int[np.ndarray, " T"]) -> Target:
    """Return a policy in the rounds of a log; ``query`` is the query of each round."""
    return Target(
        probabilities=lambda part: policy.probabilities[query[part]],
        scores=lambda part: policy.scores[query[part]],
    )


def logs(
    learner: jr.Learner, task: jr.Task, *, rounds: int, seeds: Sequence[int]
) -> Iterator[Made]:
    """Let a learner serve and learn, one log per seed.

    This is the loop of `jr.simulate`, which also keeps the probability of every tool in every
    round.

    Yields:
      the log of each seed.
    """
    queries, labels = jnp.asarray(task.queries), jnp.asarray(task.labels)
    probabilities = first_probabilities(learner)

    @jax.jit
    @jax.vmap
    def serve(key, order):
        def step(state, query):
            vector = queries[query]
            slate = learner.act(state, vector, jax.random.fold_in(key, 2 * state.t))
            choice = jr.Choice(slate.items[0], slate.propensity[0])
            reward = (choice.item == labels[query]).any().astype(vector.dtype)
            new = learner.update(state, vector, choice, jr.Feedback(reward))
            return new, (*choice, reward, probabilities(state, vector))

        return lax.scan(step, learner.init(jnp.asarray(task.theta)), order)[1]

    for first in range(0, len(seeds), TOGETHER):
        some = seeds[first : first + TOGETHER]
        order = np.stack(
            [np.random.default_rng(seed).integers(0, len(task), rounds) for seed in some]
        )
        lines = serve(jnp.stack([jax.random.key(seed) for seed in some]), jnp.asarray(order))
        for query, *line in zip(order, *map(np.asarray, lines), strict=True):
            yield Made(_log(task, query, *line), query)


def _learns_nothing(state, query, choice, feedback):
    return state._replace(t=state.t + 1)


def _log(task: jr.Task, query, item, propensity, reward, probabilities) -> Log:
    t = np.arange(len(query))
    return Log(
        query=task.queries[query],
        slate=item[:, None],
        by_position=probabilities[t, item].astype(np.float64)[:, None],
        item=item,
        propensity=propensity.astype(np.float64),
        reward=reward.astype(np.float64),
        version=t,
        round=t,
        theta=task.theta,
        available=task.available,
        probabilities=probabilities,
    )
