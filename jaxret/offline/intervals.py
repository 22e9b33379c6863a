"""How far to trust an estimate: confidence sequences that hold at all times at once, and bootstrap.

**A lower bound for the mean of terms that are not bounded above.** Let ``x_t >= -b`` be terms, and
``mu_t = E[x_t | past]``. With ``c = b + 1``, ``xi = x / c`` and any guess ``g_t <= 1 / c`` that is
known before round t (here the mean of the past, cut at 1 / c),

    xi_t - g_t >= -b / c - 1 / c = -1,

and for l in [0, 1) and psi(l) = -ln(1 - l) - l it is ``exp(l y - psi(l) y^2) <= 1 + l y`` for all
``y >= -1`` (Fan, Grama and Liu 2015), since (ln(1 + u) - u) / u^2 grows with u, and u = l y >= -l.
With y = xi_t - g_t the right side has a mean, given the past, of
``1 + l (mu_t / c - g_t) <= exp(l (mu_t / c - g_t))``, so that

    exp(l S_t - psi(l) V_t),   S_t = sum xi_i - mu_i / c,   V_t = sum (xi_i - g_i)^2

is a supermartingale that begins at 1, whatever mu_i are. So is its mixture over l, with the density
``rho^rho e^(-rho (1 - l)) (1 - l)^(rho - 1) / (Gamma(rho) - Gamma(rho, rho))`` on [0, 1), which has
the closed form (z = S + V + rho, n = V + rho; lower incomplete Gamma)

    M(S, V) = rho^rho e^(z - rho) z^(-n) gamma(n, z) / gamma(rho, rho)

(the gamma-exponential mixture of Howard et al. 2021, cut at 1 as in Waudby-Smith et al. 2022). By
Ville's inequality M stays below 1 / alpha for ever with probability 1 - alpha. It grows with S; so,
with s(V) the S at which it is 1 / alpha, at all times at once

    (mu_1 + .. + mu_t) / t  >=  c (sum xi_i - s(V_t)) / t.

**Two sides from one** (mirroring and truncation, Waudby-Smith et al. 2022). An upper bound of V is
one minus a lower bound of what the policy would earn were rewards 1 - y. So weights, however large,
enter through their variance alone, and not through their largest possible value. For IPS b = 0:
``w y`` and ``w (1 - y)`` are no less than 0. For DR the model m is replaced by ``min(m, h / w)``
tool by tool, and for the other side 1 - m by ``min(1 - m, h / w)``, before expectations are taken:
it is a model like any other, and the terms are no less than -h, so b = h. That needs the log's
chance of every tool, shown or not.

**What is covered.** Given the queries, mu_t is the policy's value on query t, and the interval at t
is for its value on the first t queries of the log, in whatever way those came. Where queries are
drawn independently from one distribution, mu_t is V and the same interval is for V. It holds while
the log's learner learns, since propensities are those of the round; and for a policy that was there
before the log's first round.

Letters: T rounds, m times; the others as above. Waudby-Smith, Wu, Ramdas, Karampatziakis, Mineiro
2022: 'Anytime-valid off-policy inference for contextual bandits'; Howard, Ramdas, McAuliffe, Sekhon
2021: 'Time-uniform, nonparametric, nonasymptotic confidence sequences'.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammainc, gammaln

RHO = 5.0  # tightest where V is about 50, and at most a fifth wider than the best up to 10^6
RESAMPLES = 500


class Sequence(NamedTuple):
    """Bounds at m times, which hold together."""

    times: Int[np.ndarray, " m"]  # after so many rounds
    low: Float[np.ndarray, " m"]
    high: Float[np.ndarray, " m"]


def checked_times(rounds: int, count: int = 100) -> Int[np.ndarray, " m"]:
    """When a sequence is looked at: from 10 rounds on, evenly in the logarithm, and at the end.

    Returns:
      numbers of rounds [m], increasing, the last one T.
    """
    return np.unique(np.geomspace(min(10, rounds), rounds, count).round().astype(int))


def lower_bounds(
    terms: Float[np.ndarray, " T"],
    times: Int[np.ndarray, " m"],
    *,
    alpha: float,
    least: float = 0.0,
) -> Float[np.ndarray, " m"]:
    """Lower bounds for the mean of ``E[x_i | past]`` over the first t rounds, at all t at once.

    Args:
      terms: x, none below ``-least``.
      times: at which the bounds are wanted.
      alpha: probability that one of them fails, at any time.
      least: b.

    Returns:
      [m].
    """
    scale = least + 1
    xi = np.asarray(terms, np.float64) / scale
    sums, counts = np.cumsum(xi), np.arange(1, len(xi) + 1)
    past = np.concatenate([[0.0], sums[:-1]])
    guess = np.minimum((past + 0.5 / scale) / counts, 1 / scale)
    variance = np.cumsum((xi - guess) ** 2)
    at = np.asarray(times) - 1
    return scale * (sums[at] - _crossing(variance[at], alpha)) / times


def confidence_sequence(
    low: Float[np.ndarray, " T"],
    high: Float[np.ndarray, " T"],
    times: Int[np.ndarray, " m"],
    *,
    alpha: float,
    least: float = 0.0,
) -> Sequence:
    """Bounds on both sides, each with alpha / 2, in [0, 1].

    Args:
      low: terms whose mean is the value.
      high: terms whose mean is one minus the value.
      times: as in `lower_bounds`.
      alpha: as there.
      least: as there, of both.
    """
    bounds = [lower_bounds(x, times, alpha=alpha / 2, least=least) for x in (low, high)]
    return Sequence(times, np.clip(bounds[0], 0, 1), np.clip(1 - bounds[1], 0, 1))


def bootstrap(
    above: Float[np.ndarray, " T"],
    below: Float[np.ndarray, " T"] | None = None,
    *,
    alpha: float,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of a mean, or of a ratio of means (Efron 1979); rounds are resampled.

    It holds at the end of a log whose length was fixed before, approximately, in the limit of many
    rounds of the policy's own; no more.
    """
    rng, n = np.random.default_rng(seed), len(above)
    drawn = np.zeros((2, RESAMPLES))
    for i in range(RESAMPLES):
        rows = rng.integers(0, n, n)
        drawn[:, i] = above[rows].mean(), 1.0 if below is None else below[rows].mean()
    ratios = np.divide(drawn[0], drawn[1], out=np.zeros(RESAMPLES), where=drawn[1] > 0)
    low, high = np.quantile(ratios, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def _crossing(variance: Float[np.ndarray, " m"], alpha: float) -> Float[np.ndarray, " m"]:
    """s(V): the S at which the mixture is 1 / alpha, by bisection."""
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
