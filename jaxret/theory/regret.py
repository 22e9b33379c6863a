"""Regret of a run against one fixed Theta, known in hindsight   (ORAG Sections 2.2 and 5).

    Reg_T(U) = sum_{t <= T} l(Theta_t; (q_t, i_t*)) - sum_{t <= T} l(U; (q_t, i_t*))

    regret(run).final                                   against the comparator that fits

The comparator is one Theta that scores unmapped queries: the best rows in the ball if the learner
projects onto a ball, else the proximal comparator. It is given the offsets of a rank-one learner
without experience replay (`jaxret.theory.offsets`). For a learner without a rule, whose projection
is unknown, the comparator is the best Theta whose rows are no longer than the longest row of
Theta_1. Tools that are absent in all rounds are left out.

Letters: I items, d width, N queries, S seeds, T rounds.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxret.environments.environment import effects_with, tools_change
from jaxret.evaluation.estimate import Estimate
from jaxret.learners.rank_one import rule_of
from jaxret.runtime.validate import require
from jaxret.simulation.run import Run
from jaxret.task import Task
from jaxret.theory import comparators, offsets
from jaxret.theory.comparators import Comparator, losses
from jaxret.theory.offsets import RoundOffsets

# compiled once for all temperatures, radii and step sizes
_in_ball, _proximal = jax.jit(comparators.in_ball), jax.jit(comparators.proximal)


@dataclass(frozen=True, eq=False, repr=False)
class Regret:
    """The cumulative loss of a run minus that of one Theta.

    Attributes:
      curve: regret after each round [S, T].
      comparator: Theta whose loss is subtracted, and the accuracy of the search for it.
      offsets: numbers that depend on each round's offsets; None for a learner without offsets.
    """

    curve: Float[np.ndarray, "S T"]
    comparator: Comparator
    offsets: RoundOffsets | None = None

    @property
    def final(self) -> Estimate:
        """Regret of each seed after the last round."""
        return Estimate.of(self.curve[:, -1])

    def __repr__(self) -> str:
        doubt = "" if self.comparator.converged else " (the comparator did not converge)"
        return f"regret {self.final} after {self.curve.shape[1]:,} rounds{doubt}"


def cumulative_regret(
    trace_losses: Float[ArrayLike, "*S T"],
    comparator_losses: Float[ArrayLike, " N"] | Float[ArrayLike, "S T"],
    order: Int[ArrayLike, "*S T"],
) -> Float[np.ndarray, "*S T"]:
    """Sum the differences of losses over the rounds, on the host in float64.

    Args:
      trace_losses: `Trace.loss` of one run [T] or of several [S, T].
      comparator_losses: loss of the comparator on each query [N], or in each round [S, T].
      order: query of each round, in the shape of ``trace_losses``; rounds with -1 add nothing.

    Returns:
      Regret after each round [T] or [S, T].

    Raises:
      ValueError: if losses and order have different shapes.
    """
    order, losses_of_run = np.asarray(order), np.asarray(trace_losses, np.float64)
    compared = np.asarray(comparator_losses, np.float64)
    compared = compared[order] if compared.ndim == 1 else compared
    if losses_of_run.shape != compared.shape:
        raise ValueError(
            f"losses {losses_of_run.shape} and order {compared.shape} must have one shape"
        )
    return np.cumsum(np.where(order >= 0, losses_of_run - compared, 0.0), axis=-1)


def regret(
    run: Run,
    against: Float[ArrayLike, "I d"] | Comparator | None = None,
    *,
    tau: float | None = None,
) -> Regret:
    """Measure the cumulative regret of every seed of a run.

    Args:
      run: run of a learner with a softmax.
      against: one Theta [I, d] for all seeds, or a comparator; None: the comparator that fits the
        learner's projection.
      tau: temperature of the comparator, > 0, for a learner that is not rank one; None: the
        temperature of the learner's rule.

    Returns:
      The regret after each round, and the comparator.

    Raises:
      ValueError: if the learner has no softmax, ``tau`` is missing for a learner without a rule or
        given for one with a rule, queries, labels or tools changed, or Theta has another shape.
    """
    tau, task, rule = temperature(run, tau), start_of(run), rule_of(run.learner)
    if against is None:
        against = comparator(run, tau=tau if rule is None else None)
    elif not isinstance(against, Comparator):
        against = _given(jnp.asarray(against), run)
    if rule is not None and rule.offsets is not None:
        own = offsets.measured(run, against.theta, jnp.asarray(task.theta))
        curve = cumulative_regret(run.trace.loss, own.comparator_loss, run.order)
        return Regret(curve, against, own)
    its_losses = losses(against.theta, task.queries, task.labels, tau=tau)
    return Regret(cumulative_regret(run.trace.loss, its_losses, run.order), against)


def comparator(run: Run, *, tau: float | None = None) -> Comparator:
    """Find the comparator of a run: the best rows in a ball, or the proximal comparator.

    Args:
      run: run of a learner with a softmax.
      tau: temperature of the comparator, > 0, for a learner that is not rank one; None: the
        temperature of the learner's rule.

    Raises:
      ValueError: if the learner has no softmax or temperature, queries, labels or tools changed, or
        a rule with eta = 0 does not project onto a ball.
    """
    tau, task = temperature(run, tau), start_of(run)
    counts = np.bincount(run.order[0], minlength=len(task)).astype(np.float32)
    radius, given = ball_radius(run), offsets.of_queries(run)
    shared = {"tau": tau, "counts": counts, "offsets": given}
    if radius is not None:
        return _in_ball(task.queries, task.labels, radius=radius, theta_0=task.theta, **shared)
    rule: Any = rule_of(run.learner)  # without a rule there is a radius
    eta = float(rule.eta)
    if not eta > 0:
        raise ValueError(f"{run.name} has eta = 0: no proximal comparator belongs to it")
    return _proximal(task.queries, task.labels, task.theta, eta=eta, **shared)


def ball_radius(run: Run) -> float | None:
    """Return the radius of the ball that holds the comparator; None if it is unconstrained.

    Args:
      run: run whose learner's projection has the radius; without a rule the radius is the length of
        the longest row of Theta_1.
    """
    if (rule := rule_of(run.learner)) is None:
        return float(np.linalg.norm(start_of(run).theta, axis=1).max())
    projection = rule.projection
    is_ball = projection.convex and projection.radius is not None
    return float(projection.radius) if is_ball else None


def temperature(run: Run, tau: float | None) -> float:
    """Return the temperature of a run's comparator.

    Args:
      run: run of a learner with a softmax.
      tau: temperature given by the caller, > 0; None: the temperature of the learner's rule.

    Raises:
      ValueError: if the learner has no softmax, ``tau`` is missing for a learner without a rule, or
        given for one with a rule.
    """
    rule = rule_of(run.learner)
    if run.learner.logits is None:
        raise ValueError(f"{run.name} has no softmax: so it has no loss, regret or bounds")
    if rule is not None and tau is not None:
        raise ValueError(f"{run.name} is rank one and has tau = {float(rule.tau):g}: give no other")
    if rule is not None:
        return float(rule.tau)
    if tau is None:
        raise ValueError(
            f"{run.name} is not a rank-one rule: give the temperature of its comparator, tau="
        )
    require("tau", tau, "> 0", lambda x: x > 0)
    return float(tau)


def start_of(run: Run) -> Task:
    """Return the task of a run with Theta_1 projected and without absent tools.

    Raises:
      ValueError: if queries, labels or tools changed, or a query has no right tool.
    """
    environment, task = run.environment, run.task
    if none := int((~task.answerable).sum()):
        raise ValueError(
            f"{none:,} queries of {task.name} have no right tool, and so no loss: regret and its "
            "bounds are for task.select(task.answerable)"
        )
    if tools_change(environment) or effects_with(environment, "queries_at", "labels_at"):
        raise ValueError(
            f"queries, labels or tools changed while {run.name} ran: regret is against one Theta, "
            "for constant queries, labels and tools"
        )
    projected = run.learner.init(jnp.asarray(task.theta)).theta
    start = replace(task, theta=np.asarray(projected))
    if task.available is None:
        return start
    rows = np.flatnonzero(task.available)
    positions = np.full(len(task.ids) + 1, -1, np.int32)  # the last entry is for padding
    positions[rows] = np.arange(len(rows))
    return replace(
        start,
        given_prior=None,  # its positions are those of the whole catalogue
        lexical=False,
        ids=tuple(task.ids[row] for row in rows),
        theta=start.theta[rows],
        labels=positions[task.labels],
        available=None,
        documents=None,
    )


def _given(theta: Float[Array, "I d"], run: Run) -> Comparator:
    """Wrap any Theta as a comparator, without certificates."""
    if theta.shape != run.task.theta.shape:
        have, want = list(theta.shape), list(run.task.theta.shape)
        raise ValueError(f"against must be rows {want}, a line for each tool, got {have}")
    return Comparator(theta if run.task.available is None else theta[run.task.available])
