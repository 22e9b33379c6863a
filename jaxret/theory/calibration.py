"""Are predicted chances of success the chances? A test by decile that holds while both change.

    null        E[y_t | all before round t, q_t, a_t] = f_t       in every round
    e-value     E_l = prod_t exp(l y_t) / (1 + f_t (e^l - 1))     of one decile's rounds, for l != 0
    p           min(1, 1 / mean over l of E_l), corrected for ten deciles by Holm's procedure

Under the null each factor has the mean 1 given all before, for a bit exactly and for any y in
[0, 1] at most (exp is convex). So E_l is a nonnegative supermartingale that starts at 1, and P(E >=
1 / alpha) <= alpha, by Ville's inequality also at the worst round. It matters that f_t was said
before y_t; it does not that f_t depends on the bits before, which an ordinary test by decile
(Hosmer and Lemeshow 1980) cannot allow for. E_l is the likelihood of bits whose odds are e^l times
as high as predicted, over that of bits as predicted: l > 0 finds chances that were said too low.

Deciles are those of the predictions in the first tenth of the rounds, which are not tested: so the
decile of a round is known before its bit.

A small p refutes the null; a large one proves nothing, since a prediction may be wrong for every
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
    """The rounds whose prediction fell between two deciles."""

    low: float
    high: float
    rounds: int
    predicted: float  # mean
    happened: float  # mean of the bits
    p: float  # of the null, corrected for there being several deciles


def by_decile(
    predictions: Float[np.ndarray, "S T"], bits: Float[np.ndarray, "S T"]
) -> tuple[Decile, ...]:
    """Tests predictions decile by decile; deciles that are the same are one.

    Args:
      predictions: f_t in [0, 1], each said before its bit.
      bits: y_t in [0, 1].

    Raises:
      ValueError: unless both are [S, T] and in [0, 1].
    """
    f, y = np.asarray(predictions, np.float64), np.asarray(bits, np.float64)
    if f.ndim != 2 or f.shape != y.shape:
        raise ValueError(f"predictions and bits must both be [S, T], got {f.shape} and {y.shape}")
    for name, values in (("predictions", f), ("bits", y)):
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"{name} must be in [0, 1], got {values.min()} to {values.max()}")
    edges, place = places(f)
    first = f.shape[1] - place.shape[1]
    f, y = f[:, first:], y[:, first:]
    bounds = np.concatenate([[0.0], edges, [1.0]])
    met = [decile for decile in range(len(edges) + 1) if (place == decile).any()]
    raw = [chance(f[place == decile], y[place == decile]) for decile in met]
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


def places(
    predictions: Float[np.ndarray, "S T"],
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, "S u"]]:
    """The deciles of the first tenth of the rounds, and where the other rounds fall.

    Returns:
      the edges between deciles [n], at most 9, and the decile of each later round [S, u].
    """
    first = max(1, predictions.shape[1] // 10)
    edges = np.unique(np.quantile(predictions[:, :first], np.arange(1, 10) / 10))
    return edges, np.searchsorted(edges, predictions[:, first:], side="right")


def chance(predictions: Float[np.ndarray, " n"], bits: Float[np.ndarray, " n"]) -> float:
    """p of the null for some rounds, whichever are taken before their bits are known."""
    odds = np.expm1(TILTS)[:, None]
    logs = TILTS * bits.sum() - np.log1p(predictions[None, :] * odds).sum(axis=1)
    top = logs.max()
    return float(min(1.0, np.exp(-top - np.log(np.exp(logs - top).mean()))))


def as_predicted(
    name: str, predictions: Float[np.ndarray, "S T"], bits: Float[np.ndarray, "S T"]
) -> Assumption:
    """The null as an assumption: fails where the least corrected p is below one in a thousand."""
    deciles = by_decile(np.clip(predictions, 0.0, 1.0), bits)
    if not deciles:
        return Assumption(name, True, np.nan, f">= {FALSE_ALARM:g}", is_measured=False)
    worst = min(deciles, key=lambda decile: decile.p)
    said = (
        f"predicted {worst.predicted:.3g}, happened {worst.happened:.3g} in {worst.rounds} rounds"
    )
    return Assumption(name, worst.p >= FALSE_ALARM, worst.p, f">= {FALSE_ALARM:g} ({said})")
