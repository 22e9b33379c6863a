"""Bounds on the wrong tools that SquareCB shows, and a test of the assumption they need.

f_t(a) is the predicted probability of success, g_t(a) the prediction before clipping to [0, 1], and
f*(q, a) = E[y | q, a] the true probability; x = (q, 1). Tools are drawn by inverse gaps, p_a = 1 /
(K + gamma gap_a). For any f_t and any f* (Foster and Rakhlin 2020, Lemma 3),

    sum_a p_a (f*(a*) - f*(a)) <= 2 K / gamma + gamma/4 sum_a p_a (f_t(a) - f*(a))^2.        (1)

**From its regression.** If right tools always succeed and wrong tools never do, f*(q, a) is the
reward of a, and the expectation of (1) over the draws gives

    E wrong tools <= 2 K T / gamma + gamma/4 E sum_t (f_t(a_t) - y_t)^2.

**If realizable.** If f*(q, a) = theta*_a q + b* with rows in the unit ball, descent with step eta
and errors e_t = g_t(a_t) - y_t has, by telescoping ||W_t - W*||^2 (projecting only helps),

    2 sum_t e_t (g_t - f*) <= A,     A = ||W_1 - W*||^2 / eta + eta sum_t e_t^2 ||x_t||^2.

The expectation of e_t is g_t - f*, so E sum_t (g_t - f*)^2 <= E A / 2, half of the value that the
theorem derives from the regret of the square loss. Then by (1)

    E wrong tools <= 2 K T / gamma + gamma/8 E A,
    ||W_1 - W*||^2 <= sum_a (1 + ||theta_1a||)^2 + 4,

as |theta* q| <= 1 keeps b* within [-1, 2], and b_1 = 0. ||q|| <= 1 throughout.

**A test.** y_t - f* is a martingale difference of range 1, so by Hoeffding's lemma with probability
1 - delta sum_t (g_t - f*)^2 <= A + ln(1/delta) / 2, and over n rounds chosen by their predictions

    |sum (y_t - g_t)| <= sqrt(n (A + ln(1/delta) / 2)) + sqrt(n ln(1/delta) / 2).

A decile of the predictions with a larger difference **refutes realizability**. The p-value is the
smallest delta that some decile exceeds, times the number of deciles and times T, the number of
possible values of n, since n is not known beforehand. `calibration.by_decile` tests the stronger
hypothesis that the predictions are calibrated in every round: it detects far smaller errors, but a
learner that is still learning fails it although f* is in the class. Passing proves nothing.

Letters: K tools, S seeds, T rounds.
"""

import inspect
import json
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxret.evaluation.estimate import Estimate
from jaxret.learners.bandits import inverse_gap
from jaxret.learners.bandits.inverse_gap import squarecb
from jaxret.learners.learner import Learner
from jaxret.simulation.run import Run
from jaxret.theory import calibration
from jaxret.theory.assumptions import FALSE_ALARM, Assumption, at_most
from jaxret.theory.calibration import Decile
from jaxret.theory.rerun import available_rows, rerun
from jaxret.theory.theorems import WRONG, Statement, from_terms

_CLOSE = 1e-2  # relative rounding error of recorded against recomputed propensities


class History(NamedTuple):
    """Predictions for the tools that a run showed."""

    linear: Float[np.ndarray, "S T"]  # g_t(a_t)
    bits: Float[np.ndarray, "S T"]
    off: float  # largest |ratio - 1| of recorded propensities to inverse gaps of the predictions

    @property
    def predictions(self) -> Float[np.ndarray, "S T"]:
        """The clipped predictions f_t(a_t) [S, T]."""
        return np.clip(self.linear, 0.0, 1.0)


def is_squarecb(learner: Learner) -> bool:
    """Return whether the preset `squarecb` made a learner."""
    return learner.facts.origin is not None and learner.facts.origin[0] == squarecb.__name__


def statements(run: Run) -> list[Statement]:
    """Compute both bounds on the wrong tools shown.

    Raises:
      ValueError: if the learner is not SquareCB, or the rounds cannot be computed again.
    """
    found, (gamma, eta) = history(run), _settings(run.learner)
    task, rows = run.task, available_rows(run.task)
    theta_1 = np.asarray(run.learner.init(jnp.asarray(task.theta)).theta)[rows]
    items, rounds = len(rows), run.order.shape[1]
    explored = np.full(len(run.seeds), 2.0 * rounds / gamma)  # gamma here is gamma / K
    norm2 = (np.asarray(task.queries, np.float64) ** 2).sum(axis=1)[run.order]
    errors2 = (found.linear - found.bits) ** 2
    farthest = ((1.0 + np.linalg.norm(theta_1, axis=1)) ** 2).sum() + 4.0
    descent = farthest / eta + eta * (errors2 * (norm2 + 1.0)).sum(axis=1)
    regression = ((found.predictions - found.bits) ** 2).sum(axis=1)
    contradicted = float((np.asarray(run.trace.reward) != np.asarray(run.trace.success)).mean())
    common = (
        at_most("shown by inverse gaps: |pi / p - 1|", found.off, _CLOSE),
        at_most("bits say what is right: share of wrong rewards", contradicted, 0.0),
        at_most("||q||", np.sqrt(norm2.max()), 1.0 + 1e-4),
    )
    by_regression = {
        "exploring": explored,
        "square loss of the regression": gamma * items / 4.0 * regression,
    }
    realizable = {"exploring": explored, "estimating": gamma * items / 8.0 * descent}
    p = realizability(found, descent)
    name = "realizable, learning allowed for: least p by decile"
    refuted = Assumption(name, p >= FALSE_ALARM, p, f">= {FALSE_ALARM:g}")
    stated = (
        from_terms("SquareCB, if realizable", realizable, *common, refuted),
        from_terms("SquareCB, from its regression", by_regression, *common),
    )
    wrong = Estimate.of((1.0 - np.asarray(run.trace.success, np.float64)).sum(axis=1))
    return [Statement(bound, wrong, WRONG) for bound in stated]


def history(run: Run) -> History:
    """Compute a run of SquareCB again and record its predictions.

    Raises:
      ValueError: if the learner is not SquareCB, or the rounds cannot be computed again.
    """
    gamma, _ = _settings(run.learner)

    def look(nothing, state, line):
        means = state.theta @ line.query + state.extra
        probabilities = inverse_gap.inverse_gap(jnp.clip(means, 0.0, 1.0), state.available, gamma)
        return nothing, (means[line.item], line.propensity / probabilities[line.item])

    _, (linear, ratio) = rerun(run, (), look)
    return History(linear, np.asarray(run.trace.reward, np.float64), float(np.abs(ratio - 1).max()))


def deciles(run: Run) -> tuple[Decile, ...]:
    """Test by decile whether SquareCB's predictions were calibrated."""
    found = history(run)
    return calibration.by_decile(found.predictions, found.bits)


def realizability(found: History, descent: Float[np.ndarray, " S"]) -> float:
    """Compute the p-value of realizability for a learner that is still learning.

    The smallest p over deciles and seeds is multiplied by the number of these tests, and by the
    number of rounds, since the number of rounds in a decile is not known beforehand.

    Returns:
      the p-value, at most 1.
    """
    edges, place = calibration.deciles_of(found.predictions)
    rounds = found.bits.shape[1]
    off = (found.bits - found.linear)[:, rounds - place.shape[1] :]
    least, tests = 1.0, 0
    for seed, decile in np.ndindex(len(place), len(edges) + 1):
        inside = place[seed] == decile
        if inside.any():
            tests += 1
            gap = abs(off[seed, inside].sum()) / np.sqrt(inside.sum())
            if gap**2 > descent[seed]:  # sqrt(A + v) + sqrt(v) = gap, with v = ln(1 / delta) / 2
                v = ((gap**2 - descent[seed]) / (2.0 * gap)) ** 2
                least = min(least, 3.0 * np.exp(-2.0 * v))  # two tails, and the event for A
    return float(min(1.0, tests * rounds * least))


def _settings(learner: Learner) -> tuple[float, float]:
    """Return gamma / K and eta of a learner that `squarecb` made."""
    if not is_squarecb(learner) or learner.facts.origin is None:
        raise ValueError(f"learner {learner.name!r} was not made by the preset squarecb")
    given = json.loads(learner.facts.origin[1])
    standard = {name: p.default for name, p in inspect.signature(squarecb).parameters.items()}
    settings = standard | given
    return float(settings["gamma"]), float(settings["eta"])
