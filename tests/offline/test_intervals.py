"""Confidence sequences against quadrature and enumeration of all paths."""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from jaxret.offline import intervals
from jaxret.offline.intervals import RHO

NODES, WEIGHTS = special.roots_legendre(2_000)  # NumPy's is 100 times slower
X = (NODES + 1) / 2  # nodes on [0, 1]
DENSITY = RHO**RHO * np.exp(-RHO * (1 - X)) * (1 - X) ** (RHO - 1)
DENSITY /= special.gamma(RHO) * special.gammainc(RHO, RHO)


def mixture(s, v):
    """Compute the integral of exp(l s - psi(l) v) over the truncated gamma density of 1 - l."""
    s, v = np.asarray(s)[..., None], np.asarray(v)[..., None]
    integrand = np.exp(X * s + (np.log1p(-X) + X) * v) * DENSITY
    return integrand @ WEIGHTS / 2


@pytest.mark.parametrize("variance", [0.0, 0.3, 4.0, 60.0, 2_000.0])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_the_crossing_is_where_the_integral_says(variance, alpha):
    assert mixture(0.0, 0.0) == pytest.approx(1, rel=1e-8)  # a density
    (s,) = intervals._crossing(np.array([variance]), alpha)
    assert mixture(s, variance) == pytest.approx(1 / alpha, rel=1e-6)


def paths(p, high, low, rounds):
    """Return all paths of values that are ``high`` with probability p and otherwise ``low``."""
    bits = np.array([*itertools.product((0, 1), repeat=rounds)])
    chance = np.where(bits, p, 1 - p).prod(axis=1)
    return np.where(bits, high, low).astype(np.float64), chance


@pytest.mark.parametrize(
    ("p", "high", "low"), [(0.05, 20.0, 0.0), (0.3, 3.0, 0.2), (0.5, 1.0, 0.0), (0.1, 8.0, -2.0)]
)
def test_the_mixture_is_a_supermartingale_on_every_path(p, high, low):
    """Compute the exact mean over 2^10 paths, which is at most 1 and not much smaller."""
    least = max(0.0, -low)
    terms, chance = paths(p, high, low, 10)
    scale, mean = least + 1, p * high + (1 - p) * low
    xi = terms / scale
    guess = np.minimum((np.cumsum(xi, 1) - xi + 0.5 / scale) / np.arange(1, 11), 1 / scale)
    s, v = (xi - mean / scale).sum(axis=1), ((xi - guess) ** 2).sum(axis=1)
    assert 0.1 < chance @ mixture(s, v) <= 1 + 1e-9
    above = s >= 0
    closed = np.exp(intervals._log_mixture(s[above], v[above]))
    np.testing.assert_allclose(closed, mixture(s[above], v[above]), rtol=1e-6)


@pytest.mark.parametrize(
    ("p", "high", "low", "drift", "often"),
    [(0.5, 1.0, 0.0, 0.0, 0.1), (0.25, 4.0, 0.0, 0.1, 0.02), (0.9, 1.0, -6.0, 0.0, 0.3)],
)
def test_lower_bounds_fail_with_at_most_alpha_at_all_times_together(p, high, low, drift, often):
    """Computed exactly over 2^8 paths, with settings for which failures do occur.

    With a drift, the mean changes in every round, and the bound is for the mean of the rounds so
    far.
    """
    terms, chance = paths(p, high, low, 8)
    factor = 1 + drift * np.arange(8)
    times = np.arange(1, 9)
    means = (p * high + (1 - p) * low) * factor.cumsum() / times

    def failing(least):
        bounds = [intervals.lower_bounds(x * factor, times, alpha=0.8, least=least) for x in terms]
        return chance @ (np.array(bounds) > means).any(axis=1)

    assert often < failing(max(0.0, -low)) <= 0.8
    if low < 0:
        with pytest.raises(ValueError, match="terms must be >= -0, got -6"):
            failing(0.0)  # the bounds would fail more often than alpha


def test_the_variance_is_that_about_what_was_known_before():
    """Recompute the bound round by round; the guess is clipped where its terms grow."""
    terms, least, alpha = np.array([0.3, -0.5, 4.0, 9.0, 0.0, 0.2]), 0.5, 0.1
    scale, total, variance, bounds = 1.5, 0.0, 0.0, []
    for t, x in enumerate(terms):
        guess = min((total + 0.5) / (t + 1) / scale, 1 / scale)
        variance += (x / scale - guess) ** 2
        total += x
        (s,) = intervals._crossing(np.array([variance]), alpha)
        bounds.append((total - scale * s) / (t + 1))
    times = np.arange(1, 7)
    got = intervals.lower_bounds(terms, times, alpha=alpha, least=least)
    np.testing.assert_allclose(got, bounds, rtol=1e-9)
    some = intervals.lower_bounds(terms, np.array([2, 5]), alpha=alpha, least=least)
    np.testing.assert_allclose(some, [bounds[1], bounds[4]], rtol=1e-9)


def test_each_side_has_half_of_alpha():
    rng = np.random.default_rng(0)
    low, high = rng.random((2, 5_000)) * [[0.8], [1.2]]
    times = np.array([500, 5_000])
    found = intervals.confidence_sequence(low, high, times, alpha=0.1)
    np.testing.assert_array_equal(found.low, intervals.lower_bounds(low, times, alpha=0.05))
    np.testing.assert_array_equal(found.high, 1 - intervals.lower_bounds(high, times, alpha=0.05))


def test_intervals_shrink_like_one_over_the_root_and_stay_in_range():
    rng = np.random.default_rng(0)
    w = np.where(rng.random(100_000) < 0.1, 10.0, 0.0)
    y = (rng.random(100_000) < 0.4).astype(float)
    times = np.array([10, 1_000, 10_000, 100_000])
    found = intervals.confidence_sequence(w * y, w * (1 - y), times, alpha=0.05)
    assert (found.low <= 0.4).all()
    assert (found.high >= 0.4).all()
    assert ((found.low >= 0) & (found.high <= 1)).all()
    width = found.high - found.low
    assert width[0] > 0.9
    deviation = np.sqrt(10 * 0.4 - 0.16), np.sqrt(10 * 0.6 - 0.36)
    normal = 1.96 * np.array(sum(deviation)) / np.sqrt(times)
    assert (width[1:] > normal[1:]).all()  # uniform validity in time widens intervals
    assert (width[2:] < 2.3 * normal[2:]).all()


def test_a_long_log_of_certain_bits_is_nearly_certain_and_times_end_with_a_log():
    ones = np.ones(10_000)
    found = intervals.confidence_sequence(ones, 0 * ones, np.array([10_000]), alpha=0.05)
    assert found.low[0] > 0.995
    assert found.high[0] == 1


def test_the_bootstrap_of_a_mean_is_nearly_normal():
    y = (np.arange(4_000) % 4 == 0).astype(float)
    low, high = intervals.bootstrap(y, alpha=0.1)
    error = stats.norm.ppf(0.95) * np.sqrt(0.25 * 0.75 / 4_000)
    np.testing.assert_allclose([low, high], [0.25 - error, 0.25 + error], atol=0.2 * error)


def test_the_bootstrap_of_a_ratio_resamples_numerator_and_denominator_together():
    """With weights of 0 or 4 and y = 1, the ratio is always 1 while the mean weight varies."""
    w = np.where(np.arange(400) % 4 == 0, 4.0, 0.0)
    assert intervals.bootstrap(w, w, alpha=0.1) == pytest.approx((1, 1))
    low, high = intervals.bootstrap(w, alpha=0.1)
    assert high - low > 0.2
    assert intervals.bootstrap(0 * w, 0 * w, alpha=0.1) == (0, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: intervals.lower_bounds([0.5, np.nan], [2], alpha=0.1), "finite, got nan at 1"),
        (lambda: intervals.lower_bounds([0.5, -0.1], [2], alpha=0.1), "be >= -0, got -0.1 at 1"),
        (lambda: intervals.lower_bounds([0.5, -3], [2], alpha=0.1, least=2), ">= -2, got -3 at 1"),
        (lambda: intervals.lower_bounds([], [1], alpha=0.1), r"number of terms .* >= 1, got 0"),
        (lambda: intervals.lower_bounds([0.5], [2], alpha=0.1), r"rounds in 1 .. 1, got \[2\]"),
        (
            lambda: intervals.lower_bounds([0.5], [0.5], alpha=0.1),
            "times .* whole numbers, got 0.5",
        ),
        (lambda: intervals.lower_bounds([0.5], [1], alpha=5), r"alpha must be in \(0, 1\), got 5"),
        (lambda: intervals.lower_bounds([0.5], [1], alpha=0.1, least=-1), "least must be >= 0"),
        (lambda: intervals.bootstrap([0.5, np.inf], alpha=0.1), "finite, got inf at 1"),
        (lambda: intervals.bootstrap([0.5, 1], [1.0], alpha=0.1), "denominator's terms must be 2"),
        (lambda: intervals.bootstrap([0.5, 1], alpha=95), r"alpha must be in \(0, 1\), got 95"),
    ],
)
def test_terms_that_break_the_conditions_of_an_interval_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_terms_and_times_may_be_lists():
    terms = np.random.default_rng(0).random(50)
    want = intervals.lower_bounds(terms, np.array([10, 50]), alpha=0.1)
    found = intervals.lower_bounds(terms.tolist(), [10, 50], alpha=0.1)
    np.testing.assert_array_equal(found, want)
    assert intervals.bootstrap(terms.tolist(), alpha=0.1) == intervals.bootstrap(terms, alpha=0.1)
