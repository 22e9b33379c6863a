"""Intervals of off-policy estimates: confidence sequences, valid at all times, and the bootstrap.

**A lower bound for the mean of terms that are not bounded above.** Let ``x_t >= -b`` be terms, and
``mu_t = E[x_t | past]``. With ``c = b + 1``, ``xi = x / c`` and any guess ``g_t <= 1 / c`` that is
known before round t (here the mean of the past, clipped at 1 / c),

    xi_t - g_t >= -b / c - 1 / c = -1,

and for l in [0, 1) and psi(l) = -ln(1 - l) - l it is ``exp(l y - psi(l) y^2) <= 1 + l y`` for all
``y >= -1`` (Fan, Grama and Liu 2015), since (ln(1 + u) - u) / u^2 grows with u, and u = l y >= -l.
With y = xi_t - g_t the right side has a mean, given the past, of
``1 + l (mu_t / c - g_t) <= exp(l (mu_t / c - g_t))``, so that

    exp(l S_t - psi(l) V_t),   S_t = sum xi_i - mu_i / c,   V_t = sum (xi_i - g_i)^2

is a supermartingale that starts at 1, for any mu_i. So is its mixture over l, with the density
``rho^rho e^(-rho (1 - l)) (1 - l)^(rho - 1) / (Gamma(rho) - Gamma(rho, rho))`` on [0, 1), which has
the closed form (z = S + V + rho, n = V + rho; lower incomplete Gamma)

    M(S, V) = rho^rho e^(z - rho) z^(-n) gamma(n, z) / gamma(rho, rho)

(the gamma-exponential mixture of Howard et al. 2021, truncated at 1 as in Waudby-Smith et al.
2022). By Ville's inequality M stays below 1 / alpha for ever with probability 1 - alpha. M grows
with S; so, with s(V) the S at which M is 1 / alpha, at all times at once

    (mu_1 + .. + mu_t) / t  >=  c (sum xi_i - s(V_t)) / t.

**Two sides from one** (mirroring and truncation, Waudby-Smith et al. 2022). An upper bound of V is
one minus a lower bound of the policy's value for the rewards 1 - y. So weights enter through their
variance only, and not through their largest possible value. For IPS b = 0:
``w y`` and ``w (1 - y)`` are no less than 0. For DR the model m is replaced by ``min(m, h / w)``
tool by tool, and for the other side 1 - m by ``min(1 - m, h / w)``, before expectations are taken:
the result is again a model, and the terms are no less than -h, so b = h. This needs the log's
probability of every tool, shown or not.

**What is covered.** Given the queries, mu_t is the policy's value on query t, and the interval at t
covers its value on the first t queries of the log, however these were chosen. Where queries are
drawn independently from one distribution, mu_t is V and the same interval covers V. The interval
holds while the log's learner learns, since propensities are those of the round. The policy must be
fixed before the first round of the log.

Letters: T rounds, m times; the others as above. Waudby-Smith, Wu, Ramdas, Karampatziakis, Mineiro
2022: 'Anytime-valid off-policy inference for contextual bandits'; Howard, Ramdas, McAuliffe, Sekhon
2021: 'Time-uniform, nonparametric, nonasymptotic confidence sequences'.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammainc, gammaln

from jaxret.runtime.validate import finite_numbers, require, require_length, whole_numbers

RHO = 5.0  # tightest for V about 50, and at most a fifth wider than the best rho up to V = 10^6
RESAMPLES = 500
ROUNDING = 1e-6  # relative; by which a sum may be below the least of a term
CELLS = 2**17  # rounds resampled at a time: many short logs at once, with little memory


class ConfidenceSequence(NamedTuple):
    """Bounds at m times, which hold simultaneously."""

    times: Int[np.ndarray, " m"]  # after so many rounds
    low: Float[np.ndarray, " m"]
    high: Float[np.ndarray, " m"]


def lower_bounds(
    terms: Float[np.ndarray, " T"],
    times: Int[np.ndarray, " m"],
    *,
    alpha: float,
    least: float = 0.0,
) -> Float[np.ndarray, " m"]:
    """Compute lower bounds of the mean ``E[x_i | past]`` of the first t rounds, at all t at once.

    Args:
      terms: x [T], none below ``-least``.
      times: times of the bounds, in rounds [m].
      alpha: probability that a bound fails at any time.
      least: b, >= 0.

    Returns:
      bounds [m].

    Raises:
      ValueError: if a term is not finite or below ``-least``, a time is not in 1 .. T, or alpha or
        ``least`` is out of its range.
    """
    require("alpha", alpha, "in (0, 1)", lambda x: 0 < x < 1)
    require("least", least, ">= 0", lambda x: x >= 0)
    terms = finite_numbers("terms [T]", terms)
    if terms.min() < -least - ROUNDING * (1 + least):
        raise ValueError(f"terms must be >= {-least:g}, got {terms.min():g} at {terms.argmin()}")
    times = whole_numbers("times [m]", times, 1)
    allowed = f"numbers of rounds in 1 .. {len(terms)}"
    require("times", times, allowed, lambda t: ((t >= 1) & (t <= len(terms))).all())
    scale = least + 1
    xi = terms / scale
    sums, counts = np.cumsum(xi), np.arange(1, len(xi) + 1)
    past = np.concatenate([[0.0], sums[:-1]])
    guess = np.minimum((past + 0.5 / scale) / counts, 1 / scale)
    variance = np.cumsum((xi - guess) ** 2)
    at = times - 1
    return scale * (sums[at] - _crossing(variance[at], alpha)) / times


def confidence_sequence(
    low: Float[np.ndarray, " T"],
    high: Float[np.ndarray, " T"],
    times: Int[np.ndarray, " m"],
    *,
    alpha: float,
    least: float = 0.0,
) -> ConfidenceSequence:
    """Compute bounds on both sides in [0, 1], each with alpha / 2.

    Args:
      low: terms [T] whose mean is the value.
      high: terms [T] whose mean is one minus the value.
      times: times of the bounds, in rounds [m].
      alpha: probability that a bound fails at any time.
      least: b, >= 0: no term of either side is below ``-least``.
    """
    bounds = [lower_bounds(x, times, alpha=alpha / 2, least=least) for x in (low, high)]
    return ConfidenceSequence(times, np.clip(bounds[0], 0, 1), np.clip(1 - bounds[1], 0, 1))


def bootstrap(
    above: Float[np.ndarray, " T"],
    below: Float[np.ndarray, " T"] | None = None,
    *,
    alpha: float,
) -> tuple[float, float]:
    """Compute the percentile interval of a mean, or of a ratio of means, by resampling rounds.

    The interval (Efron 1979) holds approximately, for many effective rounds, at the end of a log
    whose length was fixed beforehand.

    Args:
      above: terms [T].
      below: terms of the denominator [T]; None: the mean of ``above``.
      alpha: probability that the interval fails.

    Raises:
      ValueError: if a term is not finite, the numbers of terms differ, or alpha is not in (0, 1).
    """
    require("alpha", alpha, "in (0, 1)", lambda x: 0 < x < 1)
    above = finite_numbers("terms [T]", above)
    if below is not None:
        below = finite_numbers("the denominator's terms [T]", below)
        require_length("the denominator's terms", below, len(above))
    rng, n = np.random.default_rng(0), len(above)
    means, size = np.ones((2, RESAMPLES)), max(1, CELLS // n)
    for first in range(0, RESAMPLES, size):
        some = means[:, first : first + size]
        rows = rng.integers(0, n, (some.shape[1], n))
        for mean, terms in zip(some, (above, below), strict=True):
            if terms is not None:
                mean[:] = terms[rows].mean(axis=1)
    ratios = np.divide(means[0], means[1], out=np.zeros(RESAMPLES), where=means[1] > 0)
    low, high = np.quantile(ratios, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def _crossing(variance: Float[np.ndarray, " m"], alpha: float) -> Float[np.ndarray, " m"]:
    """Find s(V), the S at which the mixture is 1 / alpha, by bisection."""
    want = -np.log(alpha)
    low, high = np.zeros_like(variance), np.sqrt(variance) + 1
    while (short := _log_mixture(high, variance) < want).any():
        high = np.where(short, 2 * high, high)
    for _ in range(60):
        middle = (low + high) / 2
        short = _log_mixture(middle, variance) < want
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def _log_mixture(s: Float[np.ndarray, " m"], v: Float[np.ndarray, " m"]) -> np.ndarray:
    n, z = v + RHO, s + v + RHO
    log_gamma = gammaln(n) + np.log(gammainc(n, z))
    at_start = gammaln(RHO) + np.log(gammainc(RHO, RHO))
    return RHO * np.log(RHO) + z - RHO - n * np.log(z) + log_gamma - at_start
