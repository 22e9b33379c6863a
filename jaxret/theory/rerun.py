"""Reruns with the recorded tools and rewards, which read the state of every round.

A `Trace` holds a few numbers per round. Quantities that need the states, such as sums of gradients,
are accumulated during a rerun, so that no states are stored.

Letters: I items, d width, T rounds, S seeds.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxret.environments.environment import effects_with
from jaxret.learners.learner import prior_for, query_for
from jaxret.simulation.run import Run
from jaxret.task import Task
from jaxret.types import Choice, Feedback, State

#: Methods of effects that change queries, labels, tools or the updates of a learner.
METHODS = ("available_at", "queries_at", "labels_at", "is_observed", "deliver", "change")


class Line(NamedTuple):
    """One round of a run."""

    query: Float[Array, " d"]
    learner_query: Any  # the query in the form that the learner reads
    labels: Int[Array, " L"]  # -1 pads
    item: Int[Array, ""]
    propensity: Float[Array, ""]
    reward: Float[Array, ""]


#: (accumulated, state before the round's update, round) -> (accumulated, value of the round)
Look = Callable[[Any, State, Line], tuple[Any, Any]]


class Watch(NamedTuple):
    """A quantity that a rerun computes."""

    start: Any  # accumulated before the first round
    look: Look


def require_constant(run: Run) -> None:
    """Check that the rounds of a run can be computed again from its trace.

    Raises:
      ValueError: if an effect of the environment changes queries, labels, tools or updates.
    """
    moving = [name for name in ("arrives", "leaves") if getattr(run.environment, name) is not None]
    moving += [one.name for one in effects_with(run.environment, *METHODS)]
    if moving:
        raise ValueError(
            f"{run.name} ran with {', '.join(moving)}: its rounds cannot be computed again"
        )


def rerun_for(run: Run, watches: Mapping[str, Watch]) -> dict[str, tuple[Any, Any]]:
    """Rerun every seed once, for several quantities.

    Args:
      run: run with constant queries, labels and tools, and without delays.
      watches: quantities, by name.

    Returns:
      name -> (accumulated, with a leading axis [S]; values of the rounds [S, T]).

    Raises:
      ValueError: if an effect of the environment changes queries, labels, tools or updates.
    """

    def look(gathered, state, line):
        both = {name: watch.look(gathered[name], state, line) for name, watch in watches.items()}
        return {name: one[0] for name, one in both.items()}, {n: one[1] for n, one in both.items()}

    starts = {name: watch.start for name, watch in watches.items()}
    gathered, measured = rerun(run, starts, look)
    return {name: (gathered[name], measured[name]) for name in watches}


def rerun(run: Run, start: Any, look: Look) -> tuple[Any, Any]:
    """Rerun every seed for one quantity.

    Args:
      run: run with constant queries, labels and tools, and without delays.
      start: initial value of the accumulated quantity.
      look: computes the quantity from each round.

    Returns:
      The accumulated quantity, with a leading axis [S], and the values of the rounds [S, T]; on the
      host, in float64.

    Raises:
      ValueError: if an effect of the environment changes queries, labels, tools or updates.
    """
    require_constant(run)
    learner, task, trace = run.learner, run.task, run.trace
    # `device_put` compiles nothing, unlike `jnp.asarray` of a NumPy array
    arrays = task.queries, task.labels, task.theta, task.available
    queries, labels, theta, available = jax.device_put(arrays)
    prior = prior_for(learner, task)

    @jax.jit
    def play(order, item, propensity, reward):
        def one(carry, place):
            gathered, state = carry
            query, item, propensity, reward = place
            own = query_for(learner, queries[query], jax.tree.map(lambda x: x[query], prior))
            line = Line(queries[query], own, labels[query], item, propensity, reward)
            gathered, measured = look(gathered, state, line)
            feedback = Feedback(reward, labels=line.labels if learner.facts.oracle else None)
            state = learner.update(state, own, Choice(item, propensity), feedback)
            return (gathered, state), measured

        first = (start, learner.init(theta, available))
        (gathered, _), measured = jax.lax.scan(one, first, (order, item, propensity, reward))
        return gathered, measured

    fields = (run.order, trace.item, trace.propensity, trace.reward)
    seeds = [play(*(field[s] for field in fields)) for s in range(len(run.seeds))]
    return jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float64), *seeds)


def available_rows(task: Task) -> Int[np.ndarray, " n"]:
    """Return the rows of the available tools.

    Returns:
      Positions [n].
    """
    return np.arange(len(task.ids)) if task.available is None else np.flatnonzero(task.available)


def one_hot_labels(labels: Int[Array, " L"], like: Float[Array, " I"]) -> Float[Array, " I"]:
    """Compute ``1[labels] / L``, which the gradient of the averaged loss subtracts from p.

    Args:
      labels: [L], -1 pads.
      like: logits [I], minus infinity for absent items; absent labels do not count.

    Returns:
      Weights [I], which sum to 1 if a label is available.
    """
    hot = (jnp.arange(like.shape[0])[:, None] == labels[None, :]).any(axis=1).astype(like.dtype)
    hot = hot * jnp.isfinite(like)
    return hot / jnp.maximum(hot.sum(), 1.0)
