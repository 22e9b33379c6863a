"""Regret bounds, with their terms and with their assumptions measured on a run.

    theorem_5_1     ||Theta_1 - U||^2 / (2 eta) + eta/2 sum_t (1/p* - 2 p* + 1) ||q_t||^2
    theorem_b2      labels noisy at rate rho: more variance, and the bias - sum_t <B_t, Theta_t - U>
    debiased        ours, with the debiased reward: no bias, but more variance
    corollary_5_2   theta / (2 eta) + eta/2 q (1/p - 2 p + 1) T
    corollary_b3    theta / (2 eta) + eta q (1/p - 2 p + 1 + rho I / p_item) T + 2 rho R I sqrt(q) T

p* is the probability of the right item, expectations are means over the seeds of a run, and
q stands for q / tau. The proofs only require that U does not depend on the draws (and is in the
convex set that rows are projected to), so U is any comparator: Theta* if it exists, or the proximal
comparator, for which Theorem 5.1 is tightest.

The update enters by E||G_t||_F^2 = E||c||^2 ||q_t||^2. Enumerating the item (a with p_a) and the
bit, with m_i = P(y = 1 | a = i), gives for Eq. (4)

    E||c||^2 = sum_i (p_i^2 - 2 p_i m_i + m_i / p_i).

For clean bits this is sum_i p_i^2 - 2 p* + 1/p*, and the theorem bounds the sum by 1. The rule of
App. B.2, which moves only one row, has 1/p* - 1, which is never larger: Theorem 5.1 holds too.

The corollaries use constants in place of the run's numbers. Corollary 5.2 is smallest at eta of
order 1 / sqrt(T), where it is of order sqrt(T); the last term of Corollary B.3 is linear in T for
every eta.

Letters: I items, d width, T rounds, S seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxret.evaluation.estimate import Estimate
from jaxret.runtime.validate import require
from jaxret.theory import assumptions
from jaxret.theory.assumptions import (
    Assumption,
    Evidence,
    at_least,
    at_most,
    bias_product,
    distance2,
    inverse_p,
    norm2,
    p_label,
    require_seeds,
)
from jaxret.theory.regret import Regret

WRONG = "wrong tools"  # a bounded quantity


class Bound(NamedTuple):
    """An upper bound, usually on the expected regret; void if an assumption fails."""

    name: str
    value: float
    stderr: float  # standard error of the value, over seeds
    terms: dict[str, float]  # their sum is value
    assumptions: tuple[Assumption, ...]

    @property
    def holds(self) -> bool:
        """True if no assumption is refuted; `Assumption.is_measured` tells which were measured."""
        return all(a.holds for a in self.assumptions)


@dataclass(frozen=True, eq=False, repr=False)
class Statement:
    """An upper bound on a quantity of a run, and the measured quantity.

    Attributes:
      bound: upper bound, with its terms and assumptions.
      estimate: measured quantity of each seed.
      quantity: name of the bounded quantity.
      regret: regret of the run; None if another quantity is bounded.
    """

    bound: Bound
    estimate: Estimate
    quantity: str = "regret"
    regret: Regret | None = None

    @property
    def name(self) -> str:
        return self.bound.name

    @property
    def value(self) -> float:
        """Value of the upper bound."""
        return self.bound.value

    @property
    def measured(self) -> float:
        """Mean of the measured quantity over seeds."""
        return self.estimate.mean

    @property
    def holds(self) -> bool:
        """True if no assumption is refuted and the comparator of a regret converged."""
        return self.bound.holds and self._converged

    @property
    def _converged(self) -> bool:
        return self.regret is None or bool(self.regret.comparator.converged)

    def __repr__(self) -> str:
        doubt = "" if self._converged else "; void: the comparator did not converge"
        return f"{describe(self.bound, self.quantity)}\n  measured {self.estimate}{doubt}"


def theorem_5_1(run: Evidence) -> Bound:
    """Compute Theorem 5.1, for clean bits and any comparator."""
    return _bound("Theorem 5.1", run, clean_variance, noise_rate=0.0, bias=0.0)


def theorem_b2(run: Evidence, *, noise_rate: float) -> Bound:
    """Compute Theorem B.2: Eq. (4) with noisy bits, Eq. (10).

    The bias B_t has the rows ``rho q_t (2 1[i*] - 1)``, so that with z = Theta q / tau
    ``<B_t, Theta> = rho (2 z_{i*} - sum_i z_i)``. The proof's ||a + b||^2 <= 2||a||^2 + 2||b||^2
    costs about a factor 2 in the variance.

    Args:
      run: runs and their comparator.
      noise_rate: rho, in [0, 0.5].

    Returns:
      The bound, with the terms start, variance and bias.

    Raises:
      ValueError: if the noise rate is out of its range.
    """
    require("noise_rate", noise_rate, "in [0, 0.5]", lambda x: 0 <= x <= 0.5)

    def variance(p_label, inverse_p):
        return 2.0 * (clean_variance(p_label) + noise_rate * inverse_p)

    return _bound("Theorem B.2", run, variance, noise_rate=noise_rate, bias=noise_rate)


def debiased(run: Evidence, *, noise_rate: float) -> Bound:
    """Compute our bound for `estimators.debiased`, which has no linear part.

    The reward y' = (y - rho) / (1 - 2 rho) has the mean r, the clean bit, and the variance
    v = rho (1 - rho) / (1 - 2 rho)^2, for every chosen item. Hence G_t is unbiased, the proof of
    Theorem 5.1 holds with B_t = 0, and since E[y'^2 | a = i] = 1[i*] + v,

        E||c||^2 = sum_i (p_i^2 - 2 p_i 1[i*] + (1[i*] + v) / p_i)
                <= 1 - 2 p* + 1/p* + v sum_i 1/p_i.

    Args:
      run: runs and their comparator.
      noise_rate: rho, in [0, 0.5).

    Returns:
      The bound, with the terms start and variance.

    Raises:
      ValueError: if the noise rate is out of its range.
    """
    require("noise_rate", noise_rate, "in [0, 0.5)", lambda x: 0 <= x < 0.5)
    v = noise_rate * (1.0 - noise_rate) / (1.0 - 2.0 * noise_rate) ** 2

    def variance(p_label, inverse_p):
        return clean_variance(p_label) + v * inverse_p

    return _bound("debiased", run, variance, noise_rate=noise_rate, bias=0.0)


def describe(bound: Bound, quantity: str = "regret") -> str:
    """Format a bound with its terms, and its assumptions one per line.

    Args:
      bound: bound; assumptions that fail or were not measured are marked.
      quantity: name of the bounded quantity.
    """
    terms = " + ".join(f"{value:.4g} ({name})" for name, value in bound.terms.items())
    verdict = "" if bound.holds else "   void: an assumption fails"
    lines = [f"{bound.name}: {quantity} <= {bound.value:.4g} = {terms}{verdict}"]
    for a in bound.assumptions:
        mark = "?    " if not a.is_measured else "holds" if a.holds else "FAILS"
        measured = f"{a.measured:.4g}" if a.is_measured else "were not measured"
        lines.append(f"  {mark}  {a.name} {measured}, required {a.required}")
    return "\n".join(lines)


def _bound(
    name: str, run: Evidence, variance: Callable, *, noise_rate: float, bias: float
) -> Bound:
    """Compute a bound whose ``variance(p*, sum 1/p)`` bounds E||c||^2 and ``bias`` scales B_t."""
    require_seeds(run)
    eta = float(run.rule.eta)
    require("eta", eta, "> 0 for a regret bound", lambda x: x > 0)
    with np.errstate(all="ignore"):  # diverged runs get infinite bounds without warnings
        moment = variance(p_label(run), inverse_p(run)) * norm2(run)
        terms = {
            "start": np.full(len(moment), distance2(run) / (2.0 * eta)),
            "variance": eta / 2.0 * moment.sum(axis=1),
        }
        if bias:
            terms["bias"] = -bias * bias_product(run).sum(axis=1)
    return from_terms(
        name,
        terms,
        assumptions.same_start(run),
        assumptions.every_item_available(run),
        assumptions.constant_step(run),
        assumptions.comparator_inside(run),
        assumptions.drawn_from_model(run),
        assumptions.estimator_mean(run, noise_rate=noise_rate, bias=bias),
        assumptions.estimator_second_moment(run, noise_rate=noise_rate, allowed=variance),
        assumptions.one_label(run),
        assumptions.label_noise(run, noise_rate),
        assumptions.label_noise_by_tool(run, noise_rate),
    )


def from_terms(name: str, terms: dict[str, Float[np.ndarray, " S"]], *assumed: Assumption) -> Bound:
    """Make a bound from the terms of each seed; its value is the mean of their sum.

    Args:
      name: name of the statement.
      terms: terms of each seed [S], by name.
      *assumed: assumptions of the statement.
    """
    with np.errstate(all="ignore"):  # p* may underflow and give infinite bounds
        total = Estimate.of(np.sum(list(terms.values()), axis=0))
        means = {term: float(values.mean()) for term, values in terms.items()}
        return Bound(name, total.mean, total.error, means, assumed)


def clean_variance(p_label, inverse_p=None):
    """Compute ``1/p* - 2 p* + 1``, which bounds E||c||^2 of Eq. (4) for any ``sum_i 1/p_i``."""
    del inverse_p
    return 1.0 / p_label - 2.0 * p_label + 1.0


class Constants(NamedTuple):
    """Constants that Corollaries 5.2 and B.3 assume in every round of every seed."""

    theta: float  # upper bound of ||Theta_1 - U||_F^2
    q: float  # upper bound of ||q / tau||^2
    p_label: float  # lower bound of p*
    p_item: float  # lower bound of the harmonic mean of p_i


def measured_constants(run: Evidence) -> Constants:
    """Measure the tightest constants of a run, which are not known before the run."""
    items = run.theta_1.shape[0]
    return Constants(
        theta=distance2(run),
        q=float(norm2(run).max()),
        p_label=float(p_label(run).min()),
        p_item=float(items / inverse_p(run).max()),
    )


def corollary_5_2(run: Evidence, constants: Constants) -> Bound:
    """Compute Corollary 5.2 at the step size of the run.

    At ``eta = sqrt(theta / (2 rate T))`` with ``rate = q (1/p - 2 p + 1) / 2``, where it is
    smallest, its value is ``sqrt(theta q T (1 - p)(1 + 2 p) / p)``.
    """
    rate = constants.q * clean_variance(constants.p_label) / 2.0
    return _uniform("Corollary 5.2", run, constants, theorem_5_1(run), rate, {}, ())


def corollary_b3(run: Evidence, constants: Constants, *, noise_rate: float) -> Bound:
    """Compute Corollary B.3 at the step size of the run; its term ``bias`` is the O(rho T) part.

    The bias, 2 rho R I sqrt(q) T, uses ||Theta_t - U||_F <= 2 R sqrt(I), so U must be in the ball
    like Theta_t. The bound is smallest at ``eta = sqrt(theta / (2 rate T))`` with
    ``rate = q (1/p - 2 p + 1 + rho I / p_item)``.

    Args:
      run: runs and their comparator.
      constants: constants of the corollary; constants that the run exceeds fail as assumptions.
      noise_rate: rho, in [0, 0.5].

    Returns:
      The bound, with the terms start, variance and bias.
    """
    items, rounds = run.theta_1.shape[0], run.trace.loss.shape[1]
    ball = assumptions.in_a_ball(run)
    radius = ball.measured if noise_rate else 0.0  # avoids 0 times infinity without a ball
    bias = 2.0 * noise_rate * radius * items * np.sqrt(constants.q) * rounds
    p_item = measured_constants(run).p_item
    extra = (ball, at_least("p of any item, harmonic mean", p_item, constants.p_item))
    clean = clean_variance(constants.p_label)
    rate = constants.q * (clean + noise_rate * items / constants.p_item)
    theorem = theorem_b2(run, noise_rate=noise_rate)
    return _uniform("Corollary B.3", run, constants, theorem, rate, {"bias": bias}, extra)


def _uniform(
    name: str,
    run: Evidence,
    constants: Constants,
    theorem: Bound,
    rate: float,
    more_terms: dict[str, float],
    more_assumptions: tuple[Assumption, ...],
) -> Bound:
    """Compute a corollary, ``theta / (2 eta) + eta rate T``, from constants."""
    eta, rounds = float(run.rule.eta), run.trace.loss.shape[1]
    terms = {"start": constants.theta / (2.0 * eta), "variance": eta * rate * rounds, **more_terms}
    measured = measured_constants(run)
    return Bound(
        name=name,
        value=float(sum(terms.values())),
        stderr=0.0,
        terms=terms,
        assumptions=(
            *theorem.assumptions,
            at_most("||Theta_1 - U||^2", measured.theta, constants.theta),
            at_most("||q / tau||^2", measured.q, constants.q),
            at_least("p of the right item", measured.p_label, constants.p_label),
            *more_assumptions,
        ),
    )
