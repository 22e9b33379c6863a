"""The bounds with constants in place of the run: Corollaries 5.2 and B.3, and their step sizes.

    corollary_5_2   theta / (2 eta) + eta/2 q (1/p - 2 p + 1) T
    corollary_b3    theta / (2 eta) + eta q (1/p - 2 p + 1 + rho I / p_item) T + 2 rho R I sqrt(q) T

The first is smallest at eta of order 1 / sqrt(T), where it is of order sqrt(T); the last term
of the second is linear in T whatever eta is. Letters as in `jaxret.theory.evidence`.
"""

from typing import NamedTuple

import numpy as np

from jaxret.theory import assumptions
from jaxret.theory.assumptions import Assumption, at_least, at_most
from jaxret.theory.bounds import Bound, clean_variance, theorem_5_1, theorem_b2
from jaxret.theory.evidence import Evidence, distance2, inverse_p, norm2, p_label


class Constants(NamedTuple):
    """What Corollaries 5.2 and B.3 assume of every round of every seed."""

    theta: float  # ||Theta_1 - U||_F^2 at most
    q: float  # ||q / tau||^2 at most
    p_label: float  # p* at least
    p_item: float  # p_i at least, in the harmonic mean over i, which is all that is used


def measured_constants(run: Evidence) -> Constants:
    """The tightest constants of a run; known only afterwards, so no step size is chosen by them."""
    items = run.theta_1.shape[0]
    return Constants(
        theta=distance2(run),
        q=float(norm2(run).max()),
        p_label=float(p_label(run).min()),
        p_item=float(items / inverse_p(run).max()),
    )


def corollary_5_2(run: Evidence, constants: Constants) -> Bound:
    """Corollary 5.2, at the run's own step size.

    With `corollary_5_2_step_size` its value is ``sqrt(theta q T (1 - p)(1 + 2 p) / p)``.
    """
    rate = _rate_5_2(constants)
    return _uniform("Corollary 5.2", run, constants, theorem_5_1(run), rate, {}, ())


def corollary_5_2_step_size(constants: Constants, rounds: int) -> float:
    """The eta that makes Corollary 5.2 smallest after T rounds."""
    return _step_size(constants, _rate_5_2(constants), rounds)


def corollary_b3(run: Evidence, constants: Constants, *, noise_rate: float) -> Bound:
    """Corollary B.3, at the run's own step size; its term ``bias`` is the O(rho T) part.

    That part, 2 rho R I sqrt(q) T, takes ||Theta_t - U||_F <= 2 R sqrt(I): U must lie in the
    ball as well as Theta_t.
    """
    items, rounds = run.theta_1.shape[0], run.trace.loss.shape[1]
    ball = assumptions.in_a_ball(run)
    radius = ball.measured if noise_rate else 0.0  # without a ball: not 0 times infinity
    bias = 2.0 * noise_rate * radius * items * np.sqrt(constants.q) * rounds
    p_item = measured_constants(run).p_item
    extra = (ball, at_least("p of any item, harmonic mean", p_item, constants.p_item))
    rate = _rate_b3(constants, noise_rate, items)
    theorem = theorem_b2(run, noise_rate=noise_rate)
    return _uniform("Corollary B.3", run, constants, theorem, rate, {"bias": bias}, extra)


def corollary_b3_step_size(
    constants: Constants, rounds: int, *, noise_rate: float, items: int
) -> float:
    """The eta that makes Corollary B.3 smallest after T rounds."""
    return _step_size(constants, _rate_b3(constants, noise_rate, items), rounds)


def _uniform(
    name: str,
    run: Evidence,
    constants: Constants,
    theorem: Bound,
    rate: float,
    more_terms: dict[str, float],
    more_assumptions: tuple[Assumption, ...],
) -> Bound:
    """A theorem with constants in place of the run: ``theta / (2 eta) + eta rate T``."""
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


def _rate_5_2(constants):
    return constants.q * clean_variance(constants.p_label) / 2.0


def _rate_b3(constants, noise_rate, items):
    clean = clean_variance(constants.p_label)
    return constants.q * (clean + noise_rate * items / constants.p_item)


def _step_size(constants, rate, rounds):
    return float(np.sqrt(constants.theta / (2.0 * rate * rounds)))
