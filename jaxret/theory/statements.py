"""What the theory says of a run: every statement that applies, held against what was measured.

    for statement in bounds(run): print(statement)      value, measured, whether it holds
    regret(run).final                                   against the comparator that fits

Of a rank-one rule the statements bound its regret, of a mixture its log loss (`theory.mixture`).

The comparator follows the projection: the best rows in the ball where rows are kept in one, the
proximal comparator for free rows and on the sphere. A statement whose assumptions fail, or whose
comparator was not found to the certified gap, does not hold: its value then says nothing. Tools
that are absent throughout are left out; where tools come or go, no statement applies.

Letters: I items, d width, S seeds, T rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxret.estimate import Estimate
from jaxret.online.learner import Rule
from jaxret.online.run import Run
from jaxret.task import Task
from jaxret.theory import bounds as theorems
from jaxret.theory import comparators, constrained, corollaries, mixture
from jaxret.theory.bounds import Bound
from jaxret.theory.comparators import Comparator
from jaxret.theory.evidence import Evidence
from jaxret.theory.regret import losses
from jaxret.theory.regret import regret as cumulative_regret
from jaxret.types import Stream


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


@dataclass(frozen=True, eq=False, repr=False)
class Statement:
    """A bound on something of a run, and what was measured of it."""

    bound: Bound
    estimate: Estimate  # of each seed
    quantity: str = "regret"
    regret: Regret | None = None  # where it is regret that is bounded

    @property
    def name(self) -> str:
        return self.bound.name

    @property
    def value(self) -> float:
        """What may be measured at most."""
        return self.bound.value

    @property
    def measured(self) -> float:
        """The mean over seeds."""
        return self.estimate.mean

    @property
    def holds(self) -> bool:
        """Whether every assumption does, and the comparator of a regret converged."""
        return self.bound.holds and self._converged

    @property
    def _converged(self) -> bool:
        return self.regret is None or bool(self.regret.comparator.converged)

    def __repr__(self) -> str:
        doubt = "" if self._converged else "; void: the comparator did not converge"
        return f"{theorems.describe(self.bound, self.quantity)}\n  measured {self.estimate}{doubt}"


def regret(run: Run, against: Float[ArrayLike, "I d"] | Comparator | None = None) -> Regret:
    """Measures the cumulative regret of every seed.

    Args:
      run: of a rank-one learner on plain queries.
      against: one Theta for all seeds; None: the comparator that fits the projection.

    Raises:
      ValueError: for a learner without a softmax, or with more than rows that move; for a run in
        which tools came or went; for a Theta of another catalogue.
    """
    rule, task = _rule(run), _there(run)
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
    rule, task = _rule(run), _there(run)
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


def bounds(
    run: Run, against: Float[ArrayLike, "I d"] | Comparator | None = None
) -> list[Statement]:
    """Gives every statement that applies to a run, its assumptions measured on it.

    Clean labels: Theorem 5.1 and Corollary 5.2. Noisy ones: Theorem B.2 and Corollary B.3, and
    where less than half of them are wrong the bound of the debiased estimator, which is ours. Where
    a judge rewards, its noise rate is the share of rounds in which it contradicted the labels; the
    assumptions then say whether it errs as the theory wants it to. A mixture: its log loss against
    its best expert's, and the errors of which it was sure.

    Args:
      run: of a rank-one learner with eta > 0, or of a mixture; with several seeds as a rule.
      against: as in `regret`.

    Raises:
      ValueError: as `regret`; and for a learner with eta = 0.
    """
    if run.learner.mixing is not None:
        found = {"log loss": mixture.against_one_expert(run), "rounds": mixture.sure_errors(run)}
        return [Statement(*one, quantity) for quantity, one in found.items()]
    rule, task = _rule(run), _there(run)
    if not float(rule.eta) > 0:
        raise ValueError(f"{run.name} has eta = 0: it learns nothing that a bound could speak of")
    measured = regret(run, against)
    evidence = Evidence(
        rule=rule,
        theta_1=jnp.asarray(task.theta),
        stream=Stream(
            queries=jnp.asarray(task.queries),
            labels=jnp.asarray(task.labels),
            order=jnp.asarray(run.order),
        ),
        trace=run.trace,
        comparator=measured.comparator.theta,
        always_available=jnp.ones(len(task.theta), bool),  # or `_there` had refused the run
    )
    constants = corollaries.measured_constants(evidence)
    noise_rate = float(run.environment.noise_rate or 0.0)
    if run.environment.verdicts is not None:
        noise_rate = float((run.trace.reward != run.trace.success).mean())
    if not noise_rate:
        statements = [
            theorems.theorem_5_1(evidence),
            corollaries.corollary_5_2(evidence, constants),
        ]
    else:
        statements = [
            theorems.theorem_b2(evidence, noise_rate=noise_rate),
            corollaries.corollary_b3(evidence, constants, noise_rate=noise_rate),
        ]
        if noise_rate < 0.5:
            statements.append(theorems.debiased(evidence, noise_rate=noise_rate))
    return [Statement(bound, measured.final, regret=measured) for bound in statements]


def _there(run: Run) -> Task:
    """The task as the run began: rows projected, without the tools that are absent throughout."""
    world, task = run.environment, run.task
    if world.arrives is not None or world.leaves is not None:
        raise ValueError(
            f"tools came or went while {run.name} ran: regret is that against one Theta, for a "
            "catalogue that stays"
        )
    projected = run.learner.init(jnp.asarray(task.theta)).theta
    start = replace(task, theta=np.asarray(projected))
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


def _rule(run: Run) -> Rule:
    rule = run.learner.rule
    if run.learner.logits is None:
        raise ValueError(f"{run.name} has no softmax: so it has no loss, regret or bounds")
    if rule is None or not rule.blocked:
        raise ValueError(
            f"{run.name} moves more than its rows: the theory is of rank-one rules on plain queries"
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
