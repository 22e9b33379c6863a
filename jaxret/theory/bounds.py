"""The regret bounds, each with its terms and with its assumptions measured on a run.

    theorem_5_1   ||Theta_1 - U||^2 / (2 eta) + eta/2 sum_t (1/p* - 2 p* + 1) ||q_t||^2
    theorem_b2    labels noisy at rate rho: more variance, and the bias - sum_t <B_t, Theta_t - U>
    debiased      ours: the bit put right on average; no bias, and variance for it

p* is the probability of the right item, expectations are means over the seeds of a run, and
q stands for q / tau. The proofs use of U only that it does not depend on the draws (and
lies in the convex set that rows are projected to), so U is any comparator: Theta* where it
exists, or the proximal comparator, for which Theorem 5.1 is tightest.

What they use of the rule is E||G_t||_F^2 = E||c||^2 ||q_t||^2. By enumeration of the item
(a with p_a) and of the bit, with m_i = P(y = 1 | a = i), Eq. (4) has

    E||c||^2 = sum_i (p_i^2 - 2 p_i m_i + m_i / p_i).

Clean bits: sum_i p_i^2 - 2 p* + 1/p*, and the theorem bounds the sum by 1. The rule of
App. B.2, which moves one row only, has 1/p* - 1, never more: Theorem 5.1 holds for it too.

Letters as in `jaxret.theory.evidence`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxret.runtime.validate import require
from jaxret.theory import assumptions
from jaxret.theory.assumptions import Assumption
from jaxret.theory.evidence import (
    Evidence,
    bias_product,
    distance2,
    inverse_p,
    norm2,
    p_label,
    require_seeds,
)
from jaxret.theory.regret import over_seeds


class Bound(NamedTuple):
    """An upper bound, on the expected regret as a rule; nothing if an assumption fails."""

    name: str
    value: float
    stderr: float  # of the value, over seeds
    terms: dict[str, float]  # they add up to value
    assumptions: tuple[Assumption, ...]

    @property
    def holds(self) -> bool:
        """Whether no assumption is refuted; `Assumption.is_measured` says which were measured."""
        return all(a.holds for a in self.assumptions)


def theorem_5_1(run: Evidence) -> Bound:
    """Theorem 5.1, for clean bits and any comparator."""

    def variance(p_label, inverse_p):
        del inverse_p
        return clean_variance(p_label)

    return _bound("Theorem 5.1", run, variance, noise_rate=0.0, bias=0.0)


def theorem_b2(run: Evidence, *, noise_rate: float) -> Bound:
    """Theorem B.2: Eq. (4) fed with noisy bits, Eq. (10).

    The bias B_t has the rows ``rho q_t (2 1[i*] - 1)``, so that with z = Theta q / tau
    ``<B_t, Theta> = rho (2 z_{i*} - sum_i z_i)``. The proof's ||a + b||^2 <= 2||a||^2 + 2||b||^2
    costs about a factor 2 in the variance.
    """
    require("noise_rate", noise_rate, "in [0, 0.5]", lambda x: 0 <= x <= 0.5)

    def variance(p_label, inverse_p):
        return 2.0 * (clean_variance(p_label) + noise_rate * inverse_p)

    return _bound("Theorem B.2", run, variance, noise_rate=noise_rate, bias=noise_rate)


def debiased(run: Evidence, *, noise_rate: float) -> Bound:
    """Ours: the bound of `estimators.debiased`, which has no linear part.

    The bit y' = (y - rho) / (1 - 2 rho) has the mean r, the clean bit, and the variance
    v = rho (1 - rho) / (1 - 2 rho)^2, whichever item was chosen. Hence G_t is unbiased, the
    proof of Theorem 5.1 goes through with B_t = 0, and since E[y'^2 | a = i] = 1[i*] + v,

        E||c||^2 = sum_i (p_i^2 - 2 p_i 1[i*] + (1[i*] + v) / p_i)
                <= 1 - 2 p* + 1/p* + v sum_i 1/p_i.
    """
    require("noise_rate", noise_rate, "in [0, 0.5)", lambda x: 0 <= x < 0.5)
    v = noise_rate * (1.0 - noise_rate) / (1.0 - 2.0 * noise_rate) ** 2

    def variance(p_label, inverse_p):
        return clean_variance(p_label) + v * inverse_p

    return _bound("debiased", run, variance, noise_rate=noise_rate, bias=0.0)


def describe(bound: Bound, quantity: str = "regret") -> str:
    """The bound, its terms and its assumptions, a line each; failing ones are marked.

    So are those of which the run says nothing.
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
    """The common shape: ``variance(p*, sum 1/p)`` bounds E||c||^2, ``bias`` scales B_t."""
    require_seeds(run)
    eta = float(run.rule.eta)
    require("eta", eta, "> 0 for a regret bound", lambda x: x > 0)
    with np.errstate(all="ignore"):  # a run that diverged has an infinite bound, and no warning
        moment = variance(p_label(run), inverse_p(run)) * norm2(run)
        terms = {
            "start": np.full(len(moment), distance2(run) / (2.0 * eta)),
            "variance": eta / 2.0 * moment.sum(axis=1),
        }
        if bias:
            terms["bias"] = -bias * bias_product(run).sum(axis=1)
        total = over_seeds(np.sum(list(terms.values()), axis=0))
    return Bound(
        name=name,
        value=total.mean,
        stderr=total.stderr,
        terms={term: float(values.mean()) for term, values in terms.items()},
        assumptions=(
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
        ),
    )


def clean_variance(p_label):
    """``1/p* - 2 p* + 1``, which bounds E||c||^2 of Eq. (4) and falls as p* rises."""
    return 1.0 / p_label - 2.0 * p_label + 1.0
