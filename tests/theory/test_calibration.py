"""The calibration test by decile: likelihood ratios by hand, false alarms, and power."""

import numpy as np
import pytest
from scipy import stats

from jaxret.theory import calibration


def adaptive(rng, runs, rounds, off=0.0):
    """Sample bits with log-odds ``off`` above predictions that depend on earlier bits."""
    predictions, bits = np.zeros((2, runs, rounds))
    level, last = np.zeros((2, runs))
    for t in range(rounds):
        level = np.clip(level + 0.3 * rng.normal(size=runs) + 0.2 * (last - 0.5), -3, 3)
        predictions[:, t] = 1 / (1 + np.exp(-level))
        bits[:, t] = last = rng.random(runs) < 1 / (1 + np.exp(-level - off))
    return predictions, bits


def test_the_p_value_is_the_inverse_mean_of_likelihood_ratios():
    rng = np.random.default_rng(0)
    f, y = rng.uniform(0.05, 0.9, 40), rng.integers(0, 2, 40)
    ratios = []
    for tilt in calibration.TILTS:
        odds = np.exp(tilt) * f / (1 - f)
        tilted = odds / (1 + odds)
        ratio = stats.bernoulli.logpmf(y, tilted) - stats.bernoulli.logpmf(y, f)
        ratios.append(np.exp(ratio.sum()))
    assert calibration.p_value(f, y) == pytest.approx(min(1, 1 / np.mean(ratios)))


def test_false_alarms_are_rare_and_miscalibration_is_found():
    rng = np.random.default_rng(1)

    def least(runs, rounds, off):
        each = zip(*adaptive(rng, runs, rounds, off), strict=True)
        return [min(one.p for one in calibration.by_decile(f[None], y[None])) for f, y in each]

    honest = np.array(least(300, 300, 0.0))
    assert (honest <= 0.05).mean() <= 0.05  # far below 0.05, as Markov's inequality is loose
    assert np.median(least(20, 2000, 1.5)) < 1e-3


def test_deciles_are_those_of_the_first_tenth_and_it_is_not_tested():
    rng = np.random.default_rng(2)
    f = rng.uniform(size=(2, 400))
    y = (rng.random(f.shape) < f).astype(float)
    found = calibration.by_decile(f, y)
    edges = np.quantile(f[:, :40], np.arange(1, 10) / 10)
    assert [one.high for one in found] == pytest.approx([*edges, 1.0])
    assert sum(one.rounds for one in found) == 2 * 360
    inside = (f[:, 40:] >= edges[2]) & (f[:, 40:] < edges[3])
    assert found[3].rounds == inside.sum()
    assert found[3].predicted == pytest.approx(f[:, 40:][inside].mean())
    assert found[3].happened == pytest.approx(y[:, 40:][inside].mean())
    changed = y.copy()
    changed[:, :40] = 1 - changed[:, :40]
    assert [one.p for one in calibration.by_decile(f, changed)] == [one.p for one in found]


def test_successes_predicted_with_probability_0_refute_the_null_and_ties_are_one_decile():
    f, y = np.zeros((1, 100)), np.zeros((1, 100))
    (one,) = [d for d in calibration.by_decile(f, y) if d.rounds]
    assert one.p == 1.0
    y[0, 50:55] = 1
    (one,) = calibration.by_decile(f, y)
    assert one.p < 1e-4
    assert not calibration.as_predicted("name", f, y).holds


def test_errors_that_cancel_on_average_are_not_found():
    """Half of the queries always succeed and half always fail, yet all predictions are 1/2."""
    y = np.tile([0.0, 1.0], 200)[None]
    assert calibration.as_predicted("name", np.full_like(y, 0.5), y).holds


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match=r"must both be \[S, T\], got \(3,\) and \(3,\)"):
        calibration.by_decile(np.zeros(3), np.zeros(3))
    with pytest.raises(ValueError, match=r"predictions must be in \[0, 1\], got 2.0 to 2.0"):
        calibration.by_decile(np.full((1, 3), 2.0), np.zeros((1, 3)))
