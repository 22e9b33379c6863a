"""The regret of a run, and the rows that it is held against.

    regret(run).final                                   against the comparator that fits

The comparator follows the projection: the best rows in the ball where rows are kept in one, the
proximal comparator for free rows and on the sphere. Whatever else the learner moves, the comparator
is one Theta that meets the queries as they come. Tools that are absent throughout are left out;
where tools come or go, there is no regret.

Letters: I items, d width, S seeds, T rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxret.environments.environment import tools_change
from jaxret.evaluation.estimate import Estimate
from jaxret.learners.learner import Rule
from jaxret.learners.narrow_rows import wide
from jaxret.simulation.run import Run
from jaxret.task import Task
from jaxret.theory import comparators, constrained
from jaxret.theory.comparators import Comparator
from jaxret.theory.regret import losses
from jaxret.theory.regret import regret as cumulative_regret


@dataclass(frozen=True, eq=False, repr=False)
class Regret:
    """The loss of a run less that of one Theta, known in hindsight."""

    curve: Float[np.ndarray, "S T"]
    comparator: Comparator

    @property
    def final(self) -> Estimate:
        """After the last round, of each seed."""
        return Estimate.of(self.curve[:, -1])

    def __repr__(self) -> str:
        doubt = "" if self.comparator.converged else " (the comparator did not converge)"
        return f"regret {self.final} after {self.curve.shape[1]:,} rounds{doubt}"


def regret(run: Run, against: Float[ArrayLike, "I d"] | Comparator | None = None) -> Regret:
    """Measures the cumulative regret of every seed.

    Args:
      run: of a learner that `rank_one` or a wrapper of it made, with a softmax.
      against: one Theta for all seeds; None: the comparator that fits the projection.

    Raises:
      ValueError: for a learner without a softmax, or without a rule; for a run in which tools came
        or went; for a Theta of another catalogue.
    """
    rule, task = rule_of(run), there(run)
    if against is None:
        against = comparator(run)
    elif not isinstance(against, Comparator):
        against = _given(jnp.asarray(against), run)
    theirs = losses(
        against.theta, jnp.asarray(task.queries), jnp.asarray(task.labels), tau=rule.tau
    )
    return Regret(cumulative_regret(run.trace.loss, theirs, run.order), against)


def comparator(run: Run) -> Comparator:
    """Finds the rows that a run is held against: in the ball for the ball, else proximal.

    Raises:
      ValueError: as `regret`; and for eta = 0 outside of a ball.
    """
    rule, task = rule_of(run), there(run)
    counts = np.bincount(run.order[0], minlength=len(task)).astype(np.float32)
    projection = rule.projection
    find: Callable[..., Comparator]
    if projection.convex and projection.radius is not None:
        find = jax.jit(constrained.in_ball, static_argnames=("tau", "radius"))
        return find(
            task.queries,
            task.labels,
            tau=float(rule.tau),
            radius=float(projection.radius),
            theta_0=task.theta,
            counts=counts,
        )
    if not float(rule.eta) > 0:
        raise ValueError(f"{run.name} has eta = 0: no proximal comparator belongs to it")
    find = jax.jit(comparators.proximal, static_argnames=("tau", "eta"))
    tau, eta = float(rule.tau), float(rule.eta)
    return find(task.queries, task.labels, task.theta, tau=tau, eta=eta, counts=counts)


def there(run: Run) -> Task:
    """The task as the run began: rows projected, without the tools that are absent throughout."""
    world, task = run.environment, run.task
    if tools_change(world):
        raise ValueError(
            f"tools came or went while {run.name} ran: regret is that against one Theta, for a "
            "catalogue that stays"
        )
    projected = run.learner.init(jnp.asarray(task.theta)).theta
    start = replace(task, theta=np.asarray(wide(projected)))
    if task.available is None:
        return start
    here = np.flatnonzero(task.available)
    places = np.full(len(task.ids) + 1, -1, np.int32)  # the last one stands for padding
    places[here] = np.arange(len(here))
    return replace(
        start,
        ids=tuple(task.ids[row] for row in here),
        theta=start.theta[here],
        labels=places[task.labels],
        available=None,
        documents=None,
    )


def rule_of(run: Run) -> Rule:
    """The parts of its learner; ValueError where it has none, or no softmax."""
    rule = run.learner.rule
    if run.learner.logits is None:
        raise ValueError(f"{run.name} has no softmax: so it has no loss, regret or bounds")
    if rule is None:
        raise ValueError(
            f"{run.name} is no rank-one rule: regret needs the temperature of its comparator"
        )
    return rule


def _given(theta: Float[Array, "I d"], run: Run) -> Comparator:
    """Any Theta: nothing was minimised, so there is nothing to certify."""
    if theta.shape != run.task.theta.shape:
        have, want = list(theta.shape), list(run.task.theta.shape)
        raise ValueError(f"against must be rows {want}, a line for each tool, got {have}")
    if run.task.available is not None:
        theta = theta[run.task.available]
    unknown = jnp.asarray(jnp.nan)
    return Comparator(
        theta=theta,
        loss=unknown,
        objective=unknown,
        gradient_norm=unknown,
        iterations=jnp.asarray(0),
        converged=jnp.asarray(True),
        distance=unknown,
        gap=unknown,
    )
