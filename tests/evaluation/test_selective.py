"""Selective answers against enumeration."""

import numpy as np
import pytest

from jaxret.evaluation.selective import by_decile, risk_coverage

RNG = np.random.default_rng(0)


def test_risk_is_that_of_the_surest_answers():
    scores, right = RNG.permutation(50) / 50, RNG.random(50) < 0.5
    curve = risk_coverage(scores, right)
    for n in range(1, 51):
        surest = np.argsort(-scores)[:n]
        assert curve[n - 1] == pytest.approx(1 - right[surest].mean())


def test_equal_scores_count_as_drawn_in_a_random_order():
    scores, right = np.array([2, 1, 1, 1, 0]), np.array([True, True, False, False, True])
    means = np.zeros(5)
    for _ in range(4000):
        order = np.lexsort([RNG.random(5), -scores])
        means += np.cumsum(~right[order]) / np.arange(1, 6) / 4000
    np.testing.assert_allclose(risk_coverage(scores, right), means, atol=0.02)


def test_deciles_compare_predictions_with_answers():
    p = RNG.random(1000)
    right = RNG.random(1000) < p**2
    found = by_decile(p, right)
    order = np.argsort(p)
    for i in range(10):
        rows = order[100 * i : 100 * (i + 1)]
        assert found.predicted[i] == pytest.approx(p[rows].mean())
        assert found.happened[i] == pytest.approx(right[rows].mean())
    assert found.predicted[5] - found.happened[5] > 0.15
