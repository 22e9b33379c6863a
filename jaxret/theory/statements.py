"""What the theory says of a run: every statement that applies, held against what was measured.

    for statement in bounds(run): print(statement)      value, measured, whether it holds

Which statements: see `bounds`. A statement whose assumptions fail, or whose comparator was not
found to the certified gap, does not hold: its value then says nothing. Tools that are absent
throughout are left out; where tools come or go, no statement applies.

Letters: I items, d width, S seeds, T rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.evaluation.estimate import Estimate
from jaxret.simulation.run import Run
from jaxret.theory import bounds as theorems
from jaxret.theory import (
    corollaries,
    duality,
    gradient_noise,
    mistakes,
    mixture,
    projected,
    square_loss,
)
from jaxret.theory.bounds import Bound
from jaxret.theory.comparators import Comparator
from jaxret.theory.evidence import Evidence
from jaxret.theory.replay import replay_for
from jaxret.theory.run_regret import Regret, regret, rule_of, there
from jaxret.types import Stream

WRONG = "wrong tools"


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


def bounds(
    run: Run, against: Float[ArrayLike, "I d"] | Comparator | None = None
) -> list[Statement]:
    """Gives every statement that applies to a run, its assumptions measured on it.

    Of a rank-one rule on plain queries, with clean labels: Theorem 5.1, Corollary 5.2, Theorem 5.1
    with its projection counted (ours, for the sphere too) and Lemma 3.1; of Banditron and Gaptron
    also their bounds on wrong tools. With noisy labels: Theorem B.2, Corollary B.3, and where less
    than half of them are wrong the bound of the debiased estimator (ours). Where a judge rewards,
    its noise rate is the share of rounds in which it contradicted the labels; the assumptions then
    say whether it errs as the theory wants it to.

    Of any rule with a temperature, query maps and preconditioners included: duality (ours). A
    mixture: its log loss against its best expert's, and the errors of which it was sure. SquareCB:
    its wrong tools, from its regression's loss and if its class is realizable.

    Args:
      run: of a rank-one learner with eta > 0, of one made from it by a wrapper that keeps its rule,
        of a mixture, or of SquareCB; with several seeds as a rule.
      against: as in `regret`.

    Raises:
      ValueError: as `regret`; for a learner with eta = 0, or with rows in bfloat16; for an
        environment that `replay` refuses.
    """
    if run.learner.mixing is not None:
        found = {"log loss": mixture.against_one_expert(run), "rounds": mixture.sure_errors(run)}
        return [Statement(*one, quantity) for quantity, one in found.items()]
    if square_loss.is_squarecb(run.learner):
        return [Statement(*one, WRONG) for one in square_loss.statements(run)]
    rule, task = rule_of(run), there(run)
    if not float(rule.eta) > 0:
        raise ValueError(f"{run.name} has eta = 0: it learns nothing that a bound could speak of")
    if rule.rounding is not None:
        raise ValueError(f"{run.name} rounds its rows to bfloat16: no bound is for such steps")
    measured = regret(run, against)
    if not rule.rows_alone:
        return _dual(run, measured, duality.dual(run, float(rule.tau)))
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
        always_available=jnp.ones(len(task.theta), bool),  # or `there` had refused the run
    )
    noise_rate, watches = _noise_rate(run), {"dual": duality.watch(run)}
    if not noise_rate:
        watches["costs"] = projected.watch(run, evidence)
        watches["noise"] = gradient_noise.watch(run, evidence)
    seen = replay_for(run, watches)
    regrets = _theorems(evidence, noise_rate)
    if not noise_rate:
        regrets.append(projected.with_projection(run, evidence, seen["costs"]))
    statements = [Statement(bound, measured.final, regret=measured) for bound in regrets]
    if not noise_rate:
        noise = gradient_noise.lemma_3_1(run, evidence, seen["noise"])
        statements.append(Statement(*noise, "||sum of c - g||"))
        statements += [Statement(*one, WRONG) for one in _mistakes(evidence)]
    return statements + _dual(run, measured, duality.dual(run, float(rule.tau), seen["dual"]))


def _theorems(evidence: Evidence, noise_rate: float) -> list[Bound]:
    constants = corollaries.measured_constants(evidence)
    if not noise_rate:
        return [
            theorems.theorem_5_1(evidence),
            corollaries.corollary_5_2(evidence, constants),
        ]
    noisy = [
        theorems.theorem_b2(evidence, noise_rate=noise_rate),
        corollaries.corollary_b3(evidence, constants, noise_rate=noise_rate),
    ]
    if noise_rate < 0.5:
        noisy.append(theorems.debiased(evidence, noise_rate=noise_rate))
    return noisy


def _mistakes(evidence: Evidence) -> Sequence[gradient_noise.Measured]:
    about = {"banditron": mistakes.banditron, "successes_weighted": mistakes.gaptron}
    name = evidence.rule.estimator.name
    return [about[name](evidence)] if name in about else []


def _dual(run: Run, measured: Regret, found: duality.Dual) -> list[Statement]:
    """Duality against the comparator, and against all in the ball or on the sphere of the rows."""
    u = np.asarray(measured.comparator.theta)
    statements = [Statement(duality.against_one(found, u), measured.final)]
    if (radius := rule_of(run).projection.radius) is not None:
        longest = np.linalg.norm(u, axis=1)
        if longest.max() > radius:
            kept = u * np.minimum(1.0, radius / np.maximum(longest, radius))[:, None]
            measured = regret(run, _rows(run, kept))
            longest = np.linalg.norm(kept, axis=1)
        bound = duality.against_ball(found, float(radius), float(longest.max()))
        statements.append(Statement(bound, measured.final))
    return statements


def _rows(run: Run, kept: Float[np.ndarray, "J d"]) -> Float[np.ndarray, "I d"]:
    """Rows of the tools that are there as rows of the whole catalogue."""
    if run.task.available is None:
        return kept
    whole = np.zeros_like(run.task.theta)
    whole[np.flatnonzero(run.task.available)] = kept
    return whole


def _noise_rate(run: Run) -> float:
    if run.environment.verdicts is not None:
        return float((run.trace.reward != run.trace.success).mean())
    return float(run.environment.noise_rate or 0.0)
