"""Tests by decile whether predicted probabilities of success are calibrated, valid sequentially.

    null        E[y_t | past, q_t, a_t] = f_t                     in every round
    e-value     E_l = prod_t exp(l y_t) / (1 + f_t (e^l - 1))     of one decile's rounds, for l != 0
    p           min(1, 1 / mean over l of E_l), corrected for ten deciles by Holm's procedure

Under the null each factor has the conditional mean 1 for bits, and at most 1 for any y in [0, 1]
(exp is convex). So E_l is a nonnegative supermartingale that starts at 1, and P(E >= 1 / alpha) <=
alpha, by Ville's inequality also for the maximum over rounds. f_t must be predicted before y_t is
observed; unlike an ordinary test by decile (Hosmer and Lemeshow 1980), f_t may depend on earlier
bits. E_l is the likelihood ratio of two models of the bits, with odds e^l times those predicted
and with the predicted odds: l > 0 detects predictions that are too low.

The deciles are computed from the predictions in the first tenth of the rounds, which are not
tested, so that the decile of a round is known before its bit.

A small p refutes the null. A large p does not prove it, since predictions may be wrong for every
query and right on average over a decile.

Letters: S seeds, T rounds.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxret.evaluation.statistics import holm
from jaxret.theory.assumptions import FALSE_ALARM, Assumption

TILTS = np.array([sign * size for size in (0.03, 0.1, 0.3, 1.0, 3.0) for sign in (1, -1)])


class Decile(NamedTuple):
    """The rounds whose predictions fell between two deciles."""

    low: float
    high: float
    rounds: int
    predicted: float  # mean
    happened: float  # mean of the bits
    p: float  # p-value of the null, corrected for the number of deciles


def by_decile(
    predictions: Float[np.ndarray, "S T"], bits: Float[np.ndarray, "S T"]
) -> tuple[Decile, ...]:
    """Test predictions decile by decile; equal deciles are merged.

    Args:
      predictions: f_t in [0, 1] [S, T], each made before its bit was observed.
      bits: y_t in [0, 1] [S, T].

    Returns:
      The nonempty deciles, in ascending order.

    Raises:
      ValueError: unless both are [S, T] and in [0, 1].
    """
    f, y = np.asarray(predictions, np.float64), np.asarray(bits, np.float64)
    if f.ndim != 2 or f.shape != y.shape:
        raise ValueError(f"predictions and bits must both be [S, T], got {f.shape} and {y.shape}")
    for name, values in (("predictions", f), ("bits", y)):
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"{name} must be in [0, 1], got {values.min()} to {values.max()}")
    edges, place = deciles_of(f)
    first = f.shape[1] - place.shape[1]
    f, y = f[:, first:], y[:, first:]
    bounds = np.concatenate([[0.0], edges, [1.0]])
    met = [decile for decile in range(len(edges) + 1) if (place == decile).any()]
    raw = [p_value(f[place == decile], y[place == decile]) for decile in met]
    return tuple(
        Decile(
            low=float(bounds[decile]),
            high=float(bounds[decile + 1]),
            rounds=int((place == decile).sum()),
            predicted=float(f[place == decile].mean()),
            happened=float(y[place == decile].mean()),
            p=float(p),
        )
        for decile, p in zip(met, holm(raw), strict=True)
    )


def deciles_of(
    predictions: Float[np.ndarray, "S T"],
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, "S u"]]:
    """Compute the deciles of the first tenth of the rounds, and the decile of the other rounds.

    Returns:
      Edges between deciles [n], at most 9, and the decile of each of the u later rounds [S, u].
    """
    first = max(1, predictions.shape[1] // 10)
    edges = np.unique(np.quantile(predictions[:, :first], np.arange(1, 10) / 10))
    return edges, np.searchsorted(edges, predictions[:, first:], side="right")


def p_value(predictions: Float[np.ndarray, " n"], bits: Float[np.ndarray, " n"]) -> float:
    """Compute the p-value of the null for rounds that were selected before their bits.

    Returns:
      the p-value, at most 1.
    """
    odds = np.expm1(TILTS)[:, None]
    logs = TILTS * bits.sum() - np.log1p(predictions[None, :] * odds).sum(axis=1)
    top = logs.max()
    return float(min(1.0, np.exp(-top - np.log(np.exp(logs - top).mean()))))


def as_predicted(
    name: str, predictions: Float[np.ndarray, "S T"], bits: Float[np.ndarray, "S T"]
) -> Assumption:
    """Assume the null, which fails if the smallest corrected p is below `FALSE_ALARM`.

    Args:
      name: name of the assumption.
      predictions: [S, T], clipped to [0, 1].
      bits: [S, T].

    Returns:
      The assumption, which is not measured if no round was tested.
    """
    deciles = by_decile(np.clip(predictions, 0.0, 1.0), bits)
    if not deciles:
        return Assumption(name, True, np.nan, f">= {FALSE_ALARM:g}", is_measured=False)
    worst = min(deciles, key=lambda decile: decile.p)
    detail = (
        f"predicted {worst.predicted:.3g}, happened {worst.happened:.3g} in {worst.rounds} rounds"
    )
    return Assumption(name, worst.p >= FALSE_ALARM, worst.p, f">= {FALSE_ALARM:g} ({detail})")
