"""Every statement of the theory that applies to a run, next to the measured quantity.

    for statement in bounds(run): print(statement)      bound, terms, assumptions, measured value

`bounds` lists the statements. A statement does not hold, and its value is meaningless, if an
assumption fails or the comparator was not found to the certified gap. Tools that are absent in all
rounds are left out; no statement applies if queries, labels or tools change.

Letters: I items, d width, S seeds, T rounds.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.learners.mixture import blend_of
from jaxret.learners.rank_one import rule_of
from jaxret.simulation.run import Run
from jaxret.theory import (
    duality,
    gradient_noise,
    mistakes,
    mixture,
    projected,
    square_loss,
    theorems,
)
from jaxret.theory.assumptions import Evidence
from jaxret.theory.comparators import Comparator
from jaxret.theory.regret import Regret, ball_radius, regret, start_of, temperature
from jaxret.theory.rerun import rerun_for
from jaxret.theory.theorems import Bound, Statement
from jaxret.types import Stream


def bounds(
    run: Run,
    against: Float[ArrayLike, "I d"] | Comparator | None = None,
    *,
    tau: float | None = None,
) -> list[Statement]:
    """Compute every statement that applies to a run and measure its assumptions on the run.

    - A rank-one rule without query map or preconditioner and with clean labels: Theorem 5.1,
      Corollary 5.2, Theorem 5.1 with the cost of its projection (ours, also for the sphere) and
      Lemma 3.1; for Banditron and Gaptron also their bounds on wrong tools.
    - The same with noisy labels: Theorem B.2, Corollary B.3, and, if less than half of the rewards
      are wrong, the bound of the debiased estimator (ours). If a judge gives the rewards, or each
      tool has its own noise rate, the noise rate is the share of rounds in which the reward
      contradicted the labels, and the assumptions test whether such errors are those of the theory.
    - Every learner with a softmax except a mixture: duality (ours).
    - A mixture: its log loss against its best expert's, and its sure errors.
    - SquareCB: its wrong tools, from the loss of its regression, and under realizability.

    Args:
      run: run of a learner with a softmax, of a mixture, or of SquareCB; several seeds give
        standard errors.
      against: one Theta [I, d] for all seeds, or a comparator; None: the comparator that fits the
        learner's projection; ignored for a mixture and for SquareCB.
      tau: temperature of the comparator, > 0, for a learner that is not rank one; None: the
        temperature of the learner's rule; ignored for a mixture and for SquareCB.

    Raises:
      ValueError: if the learner has no softmax, ``tau`` is missing for a learner without a rule or
        given for one with a rule, eta is 0, queries, labels or tools changed, the rounds cannot
        be computed again, or Theta has another shape.
    """
    if blend_of(run.learner) is not None:
        return [mixture.against_one_expert(run), mixture.sure_errors(run)]
    if square_loss.is_squarecb(run.learner):
        return square_loss.statements(run)
    comparator_tau, task, rule = temperature(run, tau), start_of(run), rule_of(run.learner)
    if rule is not None and not float(rule.eta) > 0:
        raise ValueError(f"{run.name} has eta = 0: it learns nothing that a bound could speak of")
    measured = regret(run, against, tau=tau)
    if rule is None or not rule.rows_alone:
        return _dual(run, measured, duality.dual(run, comparator_tau), tau)
    arrays = task.theta, task.queries, task.labels, run.order
    theta_1, queries, labels, order = jax.device_put(arrays)  # compiles nothing
    evidence = Evidence(
        rule=rule,
        theta_1=theta_1,
        stream=Stream(queries=queries, labels=labels, order=order),
        trace=run.trace,
        comparator=measured.comparator.theta,
        always_available=jnp.ones(len(task.theta), bool),  # `start_of` refuses other runs
        offsets=measured.offsets,
    )
    noise_rate, watches = _noise_rate(run), {"dual": duality.watch(run)}
    if not noise_rate:
        watches["costs"] = projected.watch(run, evidence)
        watches["noise"] = gradient_noise.watch(run, evidence)
    seen = rerun_for(run, watches)
    regrets = _theorems(evidence, noise_rate)
    if not noise_rate:
        regrets.append(projected.with_projection(evidence, seen["costs"][1]))
    statements = [Statement(bound, measured.final, regret=measured) for bound in regrets]
    if not noise_rate:
        statements.append(gradient_noise.lemma_3_1(evidence, seen["noise"][0]))
        about = {"banditron": mistakes.banditron, "successes_weighted": mistakes.gaptron}
        wrong_tools = about.get(rule.estimator.name)
        if wrong_tools and rule.offsets is None:  # their proofs are about Theta q alone
            statements.append(wrong_tools(evidence))
    return statements + _dual(run, measured, duality.dual(run, comparator_tau, seen["dual"]), tau)


def _theorems(evidence: Evidence, noise_rate: float) -> list[Bound]:
    constants = theorems.measured_constants(evidence)
    if not noise_rate:
        return [theorems.theorem_5_1(evidence), theorems.corollary_5_2(evidence, constants)]
    noisy = [
        theorems.theorem_b2(evidence, noise_rate=noise_rate),
        theorems.corollary_b3(evidence, constants, noise_rate=noise_rate),
    ]
    if noise_rate < 0.5:
        noisy.append(theorems.debiased(evidence, noise_rate=noise_rate))
    return noisy


def _dual(run: Run, measured: Regret, found: duality.Dual, tau: float | None) -> list[Statement]:
    """Compute duality against the comparator, and against all rows in a ball or on a sphere."""
    u, rule = np.asarray(measured.comparator.theta), rule_of(run.learner)
    statements = [Statement(duality.against_one(found, u), measured.final)]
    radius = ball_radius(run) if rule is None else rule.projection.radius
    if radius is not None:
        longest = np.linalg.norm(u, axis=1)
        if longest.max() > radius:
            kept = u * np.minimum(1.0, radius / np.maximum(longest, radius))[:, None]
            measured = regret(run, Comparator(jnp.asarray(kept)), tau=tau)
            longest = np.linalg.norm(kept, axis=1)
        bound = duality.against_ball(found, float(radius), float(longest.max()))
        statements.append(Statement(bound, measured.final))
    return statements


def _noise_rate(run: Run) -> float:
    rate = run.environment.noise_rate
    if run.environment.verdicts is not None or (rate is not None and np.ndim(rate)):
        return float((run.trace.reward != run.trace.success).mean())
    return float(rate or 0.0)
