"""Proposition B.1 on three queries and four tools, against sums over all pairs."""

import itertools
import math

import numpy as np
import pytest

from jaxret.theory.surrogate import excess_risk

ETA = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 1.0, 0.0]])
SHARES = np.array([0.5, 0.3, 0.2])
PREDICTED = np.array([[0.2, 0.5, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6], [0.25, 0.25, 0.25, 0.25]])


def test_the_excess_of_cross_entropy_is_an_expected_divergence():
    risk = least = divergence = 0.0
    for q, i in itertools.product(range(3), range(4)):
        if joint := SHARES[q] * ETA[q, i]:
            risk -= joint * math.log(PREDICTED[q, i])
            least -= joint * math.log(ETA[q, i])
            divergence += joint * math.log(ETA[q, i] / PREDICTED[q, i])
    found = excess_risk(ETA, PREDICTED, SHARES)
    assert found[:3] == pytest.approx((risk, least, divergence), abs=1e-12)
    assert found.risk - found.least_risk == pytest.approx(found.divergence, abs=1e-12)
    assert excess_risk(ETA, ETA, SHARES).divergence == 0


def test_the_posterior_alone_has_the_least_risk():
    """Compare with all predictions for one query on a grid of step 0.1."""
    steps = [x for x in itertools.product(range(11), repeat=3) if sum(x) <= 10]
    grid = np.array([(*x, 10 - sum(x)) for x in steps]) / 10
    risks = [excess_risk(ETA[1:2], p[None], np.ones(1)).risk for p in grid]
    best = int(np.argmin(risks))
    np.testing.assert_allclose(grid[best], ETA[1])
    assert np.sum(np.isclose(risks, risks[best], atol=1e-9)) == 1


def test_the_error_goes_to_bayes_error_with_the_excess_risk():
    wrong = sum(
        SHARES[q] * ETA[q, i]
        for q, i in itertools.product(range(3), range(4))
        if i != PREDICTED[q].argmax()
    )
    found = excess_risk(ETA, PREDICTED, SHARES)
    assert (found.error, found.least_error) == pytest.approx((wrong, 0.5 * 0.5 + 0.3 * 0.6))
    assert 0 < found.error - found.least_error <= found.bound

    random = np.random.default_rng(0)
    certified = 0
    for size in np.geomspace(2, 1e-3, 40):  # predictions that approach eta
        p = (ETA + 1e-9) * np.exp(size * random.standard_normal(ETA.shape))
        p /= p.sum(axis=1, keepdims=True)
        found = excess_risk(ETA, p, SHARES)
        assert found.error - found.least_error <= found.bound
        pairs = zip(ETA, p, strict=True)
        far = [sum(e * math.log(e / x) for e, x in zip(*q, strict=True) if e) for q in pairs]
        assert found.bound == pytest.approx(math.sqrt(2 * float(SHARES @ far)))
        close = 2 * np.array(far) < np.array([0.2, 0.1, 1.0]) ** 2  # gaps between the first two
        np.testing.assert_array_equal(found.certified, close)
        assert (p.argmax(axis=1) == ETA.argmax(axis=1))[found.certified].all()
        certified += int(found.certified.sum())
    assert 0 < certified < 3 * 40
    assert found.certified.all()
    assert found.error == pytest.approx(found.least_error)


def test_a_tool_that_is_right_and_has_no_probability_costs_infinitely_much():
    p = np.array([[1.0, 0.0, 0.0, 0.0]])
    found = excess_risk(ETA[:1], p, np.ones(1))
    assert (found.risk, found.divergence) == (math.inf, math.inf)
    assert found.certified.tolist() == [False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shares": SHARES[:2]}, r"shapes of .* must be \[Q, I\]"),
        ({"predictions": 2 * PREDICTED}, r"sums of predictions must be within .* got 2"),
        ({"shares": np.array([1.5, -0.5, 0.0])}, "least of shares must be >= 0, got -0.5"),
    ],
)
def test_arrays_that_are_no_probabilities_are_refused(change, message):
    given = {"posteriors": ETA, "predictions": PREDICTED, "shares": SHARES}
    with pytest.raises(ValueError, match=message):
        excess_risk(**given | change)
