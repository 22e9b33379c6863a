"""Clustered means, Holm's correction and areas under curves, by hand and by double sums."""

import numpy as np
import pytest

from jaxret.evaluation.statistics import area_under_roc, holm, per_tool


def test_values_per_tool_keep_the_mean_and_give_the_clustered_error():
    """Compare with the clustered variance of a mean as a double sum over queries of one tool."""
    rng = np.random.default_rng(0)
    tools = rng.integers(0, 20, 300)
    values = rng.standard_normal(20)[tools] + 0.3 * rng.standard_normal(300)
    found = per_tool(values, tools)
    clusters = len(np.unique(tools))
    assert found.shape == (clusters,)
    assert found.mean() == pytest.approx(values.mean())
    left = values - values.mean()
    double = sum(left[i] * left[j] for i in range(300) for j in range(300) if tools[i] == tools[j])
    variance = clusters / (clusters - 1) * double / 300**2
    assert found.std(ddof=1) / np.sqrt(clusters) == pytest.approx(np.sqrt(variance))
    assert variance > 3 * values.var() / 300  # correlated queries carry less information
    alone = per_tool(np.array([0.5, -1.0, 2.0]), np.array([4, 2, 9]))  # one query a tool
    np.testing.assert_allclose(alone, [-1.0, 0.5, 2.0])


def test_holm_by_hand():
    # 0.01 x 4, 0.02 x 3, 0.04 x 2 = 0.08, which exceeds 0.03 x 2 = 0.06; 0.9 x 1.
    np.testing.assert_allclose(holm([0.04, 0.01, 0.9, 0.02]), [0.08, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(holm([0.03, 0.02]), [0.04, 0.04])
    np.testing.assert_allclose(holm([0.6, 0.7, 0.8]), [1.0, 1.0, 1.0])


def test_the_area_under_the_curve_counts_pairs_that_are_in_order():
    rng = np.random.default_rng(1)
    right = rng.random((9, 5)) < 0.3
    scores = np.round(rng.random((9, 5)) + 0.3 * right, 1)  # rounding gives ties
    by_hand = np.mean([(a > b) + 0.5 * (a == b) for a in scores[right] for b in scores[~right]])
    assert area_under_roc(scores, right) == pytest.approx(by_hand)
    assert np.isnan(area_under_roc(scores, np.ones_like(right)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: per_tool([0.5, np.nan], [0, 1]), r"values \[N\] must be finite, got nan at 1"),
        (lambda: per_tool([], []), r"the number of values \[N\] must be >= 1, got 0"),
        (lambda: per_tool([0.5, 1], [0]), r"the shape of tools must be \(2,\), got \(1,\)"),
        (lambda: per_tool(["a"], [0]), "must be real numbers: got the dtype <U1"),
        (lambda: holm([5.0, 1.0]), r"p-values must be in \[0, 1\], got \[5. 1.\]"),
        (lambda: holm([0.5, np.nan]), r"p-values must be in \[0, 1\]"),
        (lambda: area_under_roc([0.5, 1.0], [True]), r"the shape of scores must be \(1,\), got"),
        (lambda: area_under_roc([0.5, np.nan], [1, 0]), "scores must be numbers, got"),
        (lambda: area_under_roc([0.5, 1.0], ["yes", "no"]), "right must be True or False, got"),
    ],
)
def test_values_without_a_meaning_are_refused(make, message):
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_lists_and_bits_as_numbers_are_read():
    """Integers would be negated bit by bit and select other items."""
    scores, right = [0.9, 0.1, 0.8, 0.3], [1, 0, 0, 1]
    assert area_under_roc(scores, right) == 0.75
    assert area_under_roc(np.array(scores), np.array(right)) == 0.75
    np.testing.assert_array_equal(per_tool([1, 0], ["b", "a"]), [0, 1])
