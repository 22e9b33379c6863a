"""Logs whose truth is known: queries drawn from a task, policies that serve, and ones to be judged.

    world, apart = task.split((0.5, 0.5), seed=0)
    policy = judged(jr.Snapshot(learner, state), world)        its value is a sum over the queries
    for made in logs(serves, world, rounds=2_000, seeds=range(100)):
        evaluate(made.log, aim(policy, made.query), name="policy")

Queries come independently, each as likely as any other, so that there is one truth for all logs:
the mean of the policy's success over the queries of the task.

Letters: N queries, I items, d width, T rounds, S logs that are made at once.
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
from jaxret.environments.environment import Environment
from jaxret.logs import Log
from jaxret.offline.off_policy import groups_of_rows
from jaxret.offline.snapshots import Target, first_chances, target
from jaxret.simulation.scan import learn, show_slate
from jaxret.types import Stream

TOGETHER = 25  # logs in one program


class Judged(NamedTuple):
    """A frozen policy on every query of a task."""

    chances: Float[np.ndarray, "N I"]  # of each tool to be shown
    scores: Float[np.ndarray, "N I"]
    groups: Int[np.ndarray, " I"]  # of its rows, for MIPS
    value: float  # its success, the mean over all queries


class Made(NamedTuple):
    """A log, and which query of the task each round had."""

    log: Log
    query: Int[np.ndarray, " T"]


def policy(name: str, spec: Mapping[str, Any]) -> jr.Learner:
    """A learner from its settings: those of its preset, and two more.

    Args:
      name: of the learner.
      spec: ``preset`` and its settings; ``epsilon``, the share of rounds in which any tool is
        shown; ``learns``, false for one that stays as it begins.
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
    """A learner after so many exposures of a task; 0: as it begins."""
    if not exposures:
        return jr.Snapshot(learner, learner.init(jnp.asarray(task.theta)))
    run = jr.simulate(learner, task, exposures=exposures, seeds=[seed])
    return jr.Snapshot(learner, run.state(seed))


def judged(snapshot: jr.Snapshot, task: jr.Task) -> Judged:
    """Works out what a policy would do for every query, and what that is worth."""
    found = _for_every_query(snapshot, task)
    assert found.scores is not None  # a learner ranks
    return Judged(
        chances=found.chances(slice(None)),
        scores=found.scores(slice(None)),
        groups=groups_of_rows(np.asarray(snapshot.state.theta)),
        value=value(snapshot, task),
    )


def value(snapshot: jr.Snapshot, task: jr.Task) -> float:
    """The success of a frozen policy, the mean over all queries."""
    chances = _for_every_query(snapshot, task).chances(slice(None))
    return float((chances * right(task)).sum(axis=1).mean())


def _for_every_query(snapshot: jr.Snapshot, task: jr.Task) -> Target:
    n = len(task)
    zeros, ones = np.zeros(n), np.ones(n)
    return target(_log(task, np.arange(n), zeros.astype(int), ones, zeros, ones[:, None]), snapshot)


def right(task: jr.Task) -> Float[np.ndarray, "N I"]:
    """1 where a tool is right for a query.

    Returns:
      [N, I].
    """
    found = np.zeros((len(task), len(task.ids) + 1))  # what is padded goes to a column too many
    found[np.arange(len(task))[:, None], task.labels] = 1
    return found[:, :-1]


def aim(policy: Judged, query: Int[np.ndarray, " T"]) -> Target:
    """The policy in the rounds of a log that had these queries."""
    return Target(
        chances=lambda part: policy.chances[query[part]],
        scores=lambda part: policy.scores[query[part]],
    )


def logs(
    learner: jr.Learner, task: jr.Task, *, rounds: int, seeds: Sequence[int]
) -> Iterator[Made]:
    """Lets a learner serve, and learn, and write down everything; a log a seed.

    Args:
      learner: shows one tool a round and knows its chances.
      task: whose queries come, independently of each other.
      rounds: T.
      seeds: of the queries and of what is drawn.
    """
    queries = jnp.asarray(task.queries)
    chances, world = first_chances(learner), Environment()

    @jax.jit
    @jax.vmap
    def serve(key, order):
        stream = Stream(queries, jnp.asarray(task.labels), order)

        def step(state, query):
            p = chances(state, queries[query])
            slate = show_slate(learner, state, world, stream, query, key)
            new, line = learn(learner, state, world, stream, query, key, slate)
            return new, (line.item, line.propensity, line.reward, p)

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


def _log(task: jr.Task, query, item, propensity, reward, chances) -> Log:
    t = np.arange(len(query))
    return Log(
        query=task.queries[query],
        slate=item[:, None],
        by_place=chances[t, item].astype(np.float64)[:, None],
        item=item,
        propensity=propensity.astype(np.float64),
        reward=reward.astype(np.float64),
        version=t,
        round=t,
        theta=task.theta,
        available=task.available,
        chances=chances,
    )
