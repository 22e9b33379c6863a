"""Plays a seed of a run once more, with the tools and bits that it had, to look into its rounds.

A `Trace` holds a few numbers a round. What needs the state of every round, as the sums of all
gradients do, is gathered here as the rounds go by, and no state is kept.

Letters: I items, d width, T rounds, S seeds.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.environments.environment import Environment, effects_with
from jaxret.simulation.run import Run
from jaxret.task import Task
from jaxret.types import Choice, Feedback, State

#: Methods of the effects that change queries, labels, tools or the order in which bits arrive.
_MOVING = ("available_at", "queries_at", "labels_at", "is_observed", "deliver", "change")


class Line(NamedTuple):
    """What a round was about."""

    query: Float[Array, " d"]
    labels: Int[Array, " L"]  # -1 pads
    item: Int[Array, ""]
    propensity: Float[Array, ""]
    reward: Float[Array, ""]


#: (what was gathered, the state before the round's update, the round) -> what is gathered, and
#: something of this round.
Look = Callable[[Any, State, Line], tuple[Any, Any]]


class Watch(NamedTuple):
    """Somebody who looks on."""

    start: Any  # what is gathered before the first round
    look: Look


def replay_for(run: Run, watches: Mapping[str, Watch]) -> dict[str, tuple[Any, Any]]:
    """Plays every seed once for several who look on.

    Args:
      run: as in `replay`.
      watches: by name.

    Returns:
      what `replay` returns, by name.
    """

    def look(gathered, state, line):
        both = {name: watch.look(gathered[name], state, line) for name, watch in watches.items()}
        return {name: one[0] for name, one in both.items()}, {n: one[1] for n, one in both.items()}

    starts = {name: watch.start for name, watch in watches.items()}
    gathered, said = replay(run, starts, look)
    return {name: (gathered[name], said[name]) for name in watches}


def replay(run: Run, start: Any, look: Look) -> tuple[Any, Any]:
    """Plays every seed once more.

    Args:
      run: in an environment where queries, right tools and tools stay as they are, and each bit
        comes in its round.
      start: what is gathered before the first round.
      look: what to gather.

    Returns:
      what was gathered, with a leading axis [S], and what was said of each round, [S, T]; on the
      host, in float64.

    Raises:
      ValueError: for another environment.
    """
    if moving := _moving(run.environment):
        raise ValueError(
            f"{run.name} ran with {', '.join(moving)}: its rounds cannot be played once more"
        )
    learner, task, trace = run.learner, run.task, run.trace
    queries, labels = jnp.asarray(task.queries), jnp.asarray(task.labels)
    here = None if task.available is None else jnp.asarray(task.available)

    @jax.jit
    def play(order, item, propensity, reward):
        def one(carry, place):
            gathered, state = carry
            query, item, propensity, reward = place
            line = Line(queries[query], labels[query], item, propensity, reward)
            gathered, said = look(gathered, state, line)
            feedback = Feedback(reward, labels=line.labels if learner.facts.oracle else None)
            state = learner.update(state, line.query, Choice(item, propensity), feedback)
            return (gathered, state), said

        first = (start, learner.init(jnp.asarray(task.theta), here))
        (gathered, _), said = jax.lax.scan(one, first, (order, item, propensity, reward))
        return gathered, said

    fields = (run.order, trace.item, trace.propensity, trace.reward)
    seeds = [play(*(jnp.asarray(field[s]) for field in fields)) for s in range(len(run.seeds))]
    return jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float64), *seeds)


def _moving(environment: Environment) -> list[str]:
    """Names what changes queries, labels, tools or the order in which bits arrive."""
    times = [name for name in ("arrives", "leaves") if getattr(environment, name) is not None]
    return times + [one.name for one in effects_with(environment, *_MOVING)]


def rows_there(task: Task) -> Int[np.ndarray, " I"]:
    """The rows of the tools that are there.

    Returns:
      positions [I].
    """
    return np.arange(len(task.ids)) if task.available is None else np.flatnonzero(task.available)


def one_hot_labels(labels: Int[Array, " L"], like: Float[Array, " I"]) -> Float[Array, " I"]:
    """``1[labels] / L``: what the gradient of a loss that is averaged over the labels takes off p.

    Returns:
      [I].
    """
    hot = (jnp.arange(like.shape[0])[:, None] == labels[None, :]).any(axis=1).astype(like.dtype)
    hot = hot * jnp.isfinite(like)
    return hot / jnp.maximum(hot.sum(), 1.0)
