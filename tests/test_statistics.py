"""Clustered values, sign flips and Holm: by hand, by enumeration and against SciPy."""

import numpy as np
import pytest
from scipy import stats

from jaxret.statistics import holm, per_tool, sign_flips


def test_values_a_tool_keep_the_mean_and_give_the_error_of_clusters():
    """The clustered variance of a mean, written as the double sum over queries of one tool."""
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
    assert variance > 3 * values.var() / 300  # queries that hang together tell less


def test_values_of_single_queries_stay_themselves():
    values = np.array([0.5, -1.0, 2.0])
    np.testing.assert_allclose(per_tool(values, np.array([4, 2, 9]))[[1, 0, 2]], values)


def test_sign_flips_agree_with_scipy_and_with_enumeration():
    values = np.random.default_rng(1).normal(0.4, 1.0, 30)
    expected = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=20_000, random_state=0
    ).pvalue
    assert sign_flips(values, draws=20_000) == pytest.approx(expected, abs=0.01)
    assert sign_flips(np.ones(4), draws=50_000) == pytest.approx(2 / 16, abs=0.01)
    assert sign_flips(np.zeros(5), draws=99) == 1.0
    assert sign_flips(np.ones(50), draws=99) == 0.01


def test_holm_by_hand():
    # 0.01 x 4, 0.02 x 3, 0.04 x 2 = 0.08, and 0.03 x 2 = 0.06 before it; 0.9 stays.
    np.testing.assert_allclose(holm([0.04, 0.01, 0.9, 0.02]), [0.08, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(holm([0.03, 0.02]), [0.04, 0.04])
    np.testing.assert_allclose(holm([0.6, 0.7, 0.8]), [1.0, 1.0, 1.0])
