"""Expectations of off-policy estimators, by enumeration of every possible log."""

import numpy as np
import pytest

from jaxret.offline import estimators, reward_model
from jaxret.offline.off_policy import go_through
from jaxret.offline.snapshots import Target
from tests.offline.conftest import all_logs, make_log

LOGGING = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
POLICY = np.array([[0.1, 0.4, 0.5], [0.0, 0.9, 0.1]])
REWARDS = np.array([[0.2, 0.9, 0.5], [0.7, 0.4, 0.1]])
MODEL = np.array([[0.5, 0.1, 0.8], [0.3, 0.3, 0.6]])  # deliberately wrong
VALUE = (POLICY * REWARDS).sum(axis=1).mean()
T = np.arange(2)
SHRINK = (estimators.switched, estimators.shrunk)


def average(estimate):
    """Compute the mean over all logs of ``estimate(weight, reward, model, expected, items)``."""
    expected = (POLICY * MODEL).sum(axis=1)
    total = 0.0
    for items, bits, chance in all_logs(LOGGING, REWARDS):
        weight = POLICY[T, items] / LOGGING[T, items]
        total += chance * estimate(weight, bits, MODEL[T, items], expected, items)
    return total


def test_all_logs_are_a_distribution_and_ips_is_unbiased():
    assert sum(chance for *_, chance in all_logs(LOGGING, REWARDS)) == pytest.approx(1)
    mean = average(lambda w, y, *_: estimators.inverse_propensity(w, y).mean())
    assert mean == pytest.approx(VALUE, rel=1e-12)


def test_dr_is_unbiased_with_a_wrong_model_and_varies_less_with_a_right_one():
    mean = average(lambda w, y, m, e, _: estimators.doubly_robust(w, y, m, e).mean())
    assert mean == pytest.approx(VALUE, rel=1e-12)

    def squared(terms):
        return (terms.mean() - VALUE) ** 2

    right, value = REWARDS, (POLICY * REWARDS).sum(axis=1)
    dr = average(lambda w, y, m, e, a: squared(estimators.doubly_robust(w, y, right[T, a], value)))
    ips = average(lambda w, y, *_: squared(estimators.inverse_propensity(w, y)))
    noise = (POLICY**2 / LOGGING * REWARDS * (1 - REWARDS)).sum() / 4  # the remaining variance
    assert dr == pytest.approx(noise, rel=1e-12)
    assert dr < 0.6 * ips


@pytest.mark.parametrize("most", [0.5, 2.0, 100.0])
def test_clipped_ips_has_the_mean_of_its_formula_at_most_the_value(most):
    mean = average(lambda w, y, *_: estimators.clipped(w, y, most).mean())
    by_hand = (np.minimum(POLICY, most * LOGGING) * REWARDS).sum() / 2
    assert mean == pytest.approx(by_hand, rel=1e-12)
    assert mean <= VALUE + 1e-12
    assert (mean == pytest.approx(VALUE)) == (most == 100)


@pytest.mark.parametrize("most", [0.0, 1.0, 5.0])
def test_switch_dr_has_the_mean_of_its_formula(most):
    """Use rewards for weights up to s and the model for larger weights."""

    def estimate(w, y, m, e, _):
        return estimators.doubly_robust(estimators.switched(w, most), y, m, e).mean()

    small = most >= POLICY / LOGGING
    by_hand = (POLICY * np.where(small, REWARDS, MODEL)).sum() / 2
    assert average(estimate) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("scale", [0.0, 3.0, 1e12])
def test_optimistic_shrinkage_has_the_mean_of_its_formula(scale):
    def estimate(w, y, m, e, _):
        return estimators.doubly_robust(estimators.shrunk(w, scale), y, m, e).mean()

    ratio = POLICY / LOGGING
    shrunk = LOGGING * scale * ratio / (ratio**2 + scale + 1e-300)
    by_hand = (POLICY * MODEL + shrunk * (REWARDS - MODEL)).sum() / 2
    used = POLICY > 0  # 0 / 0 where weight and scale are 0
    assert used.sum() == 5
    if scale:
        assert average(estimate) == pytest.approx(by_hand, rel=1e-9)
    ends = {0.0: (POLICY * MODEL).sum() / 2, 1e12: VALUE}
    if scale in ends:
        assert by_hand == pytest.approx(ends[scale], rel=1e-9)


def test_mips_is_unbiased_where_tools_of_a_group_earn_the_same():
    groups = np.array([0, 1, 1])

    def estimate(rewards, groups):
        mine = groups[:, None] == groups
        weight = (POLICY @ mine) / (LOGGING @ mine)
        return sum(
            chance * estimators.inverse_propensity(weight[T, items], bits).mean()
            for items, bits, chance in all_logs(LOGGING, rewards)
        )

    alike = REWARDS[:, [0, 1, 1]]
    assert estimate(alike, groups) == pytest.approx((POLICY * alike).sum() / 2, rel=1e-12)
    # Otherwise it averages a group's tools with the log's frequencies.
    share = LOGGING[:, 1:] / LOGGING[:, 1:].sum(axis=1, keepdims=True)
    inner = (share * REWARDS[:, 1:]).sum(axis=1)
    biased = (POLICY[:, 0] * REWARDS[:, 0] + POLICY[:, 1:].sum(axis=1) * inner).mean()
    assert estimate(REWARDS, groups) == pytest.approx(biased, rel=1e-12)
    assert abs(biased - VALUE) > 0.02
    assert estimate(REWARDS, np.arange(3)) == pytest.approx(VALUE, rel=1e-12)
    of_log = (LOGGING * REWARDS).sum() / 2
    assert estimate(REWARDS, np.zeros(3, int)) == pytest.approx(of_log, rel=1e-12)


def test_snips_is_a_weighted_mean():
    w, y = np.array([2.0, 0.0, 0.5, 2.5]), np.array([1.0, 1.0, 0.0, 1.0])
    assert estimators.self_normalised(w, y).mean() == pytest.approx(4.5 / 5)
    assert estimators.self_normalised(np.zeros(4), y).mean() == 0


def test_tuning_trades_the_variance_for_the_weight_that_is_left_out():
    """A single weight of 1000 in 1000 rounds is dropped; many weights of 20 are kept."""
    n = 1000
    y, m, e = np.ones(n), np.full(n, 0.5), np.full(n, 0.6)
    w = np.ones(n)
    w[0] = 1000.0
    switched, shrunk = (estimators.tuned(f, w, y, m, e) for f in SHRINK)
    np.testing.assert_allclose(switched[1:], 1.1)
    assert switched[0] == pytest.approx(0.6)
    assert shrunk[0] < 0.6 + 250
    w = np.where(np.arange(n) % 20 == 0, 20.0, 0.0)
    switched, shrunk = (estimators.tuned(f, w, y, m, e) for f in SHRINK)
    np.testing.assert_allclose(switched[::20], 0.6 + 20 * 0.5)
    assert shrunk.mean() == pytest.approx(1.1, abs=0.02)


def test_dr_is_unbiased_with_a_model_that_learns_from_the_rounds_before(monkeypatch):
    """In 216 logs of three rounds in three blocks; the fitted model differs between logs."""
    monkeypatch.setattr(reward_model, "FIRST", 1)
    monkeypatch.setattr(reward_model, "GROWTH", 1.5)
    logging, policy, rewards = (np.concatenate([x, x[:1]]) for x in (LOGGING, POLICY, REWARDS))
    target = Target(
        probabilities=lambda part: policy[part], scores=lambda part: rewards[part] - 0.3
    )
    means, models = np.zeros(3), set()
    for items, bits, chance in all_logs(logging, rewards):
        log = make_log(items, bits, logging[np.arange(3), items], probabilities=logging)
        rounds = go_through(log, target, truncation=0.5)
        found = rounds.weight, rounds.reward, rounds.model, rounds.expected
        terms = estimators.doubly_robust(*found).mean(), rounds.low.mean(), rounds.high.mean()
        means += chance * np.array(terms)
        models.add(round(float(rounds.expected[2]), 6))
        assert min(rounds.low.min(), rounds.high.min()) >= -0.5
    value = (policy * rewards).sum(axis=1).mean()
    np.testing.assert_allclose(means, [value, value, 1 - value], rtol=1e-10)
    assert len(models) > 10
