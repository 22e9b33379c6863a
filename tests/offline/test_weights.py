"""Importance weights by enumeration of slates, and rounds without support in the log."""

import itertools

import numpy as np
import pytest

from jaxret.offline.off_policy import effective_sample_size, importance_weights
from tests.offline.conftest import make_log

P = np.array([0.5, 0.3, 0.15, 0.05])
PI = np.array([0.1, 0.2, 0.3, 0.4])
SLATES = [*itertools.permutations(range(4), 2)]


def places(p, slate):
    return [p[item] / (1 - p[list(slate[:j])].sum()) for j, item in enumerate(slate)]


def slates_log(used):
    """Make a log of all slates of two tools; ``used`` is the position of each tool used."""
    slate = np.array(SLATES)
    item = slate[np.arange(len(slate)), used]
    by_position = np.array([places(P, one) for one in SLATES])
    log = make_log(item, np.zeros(len(slate)), P[item], slate=slate, by_position=by_position)
    return log, by_position.prod(axis=1)


def test_the_weight_of_one_tool_is_the_ratio_of_probabilities_and_pads_do_not_count():
    log = make_log([0, 3, 2], [1, 0, 1], P[[0, 3, 2]])
    weight, bare = importance_weights(log, np.tile(PI, (3, 1)))
    np.testing.assert_allclose(weight, [0.2, 8, 2])
    assert not bare.any()
    padded = {"slate": [[1, -1], [2, 0]], "by_position": [[0.4, 1.0], [0.4, 0.5]]}
    log = make_log([1, 2], [1, 1], [0.4, 0.4], **padded)
    weight, _ = importance_weights(log, np.tile(PI, (2, 1)))
    np.testing.assert_allclose(weight, [0.5, 0.3 / 0.4 * (0.1 / 0.7) / 0.5])


def test_weights_of_slates_are_unbiased_for_any_reranker():
    """The user looks at the whole slate and takes the tool with the larger index."""
    used = np.array([int(b > a) for a, b in SLATES])
    rewards = np.array([0.1, 0.6, 0.3, 0.9])
    log, chance = slates_log(used)
    weight, bare = importance_weights(log, np.tile(PI, (12, 1)))
    assert not bare.any()
    value = sum(np.prod(places(PI, slate)) * rewards[max(slate)] for slate in SLATES)
    assert chance @ weight == pytest.approx(1, rel=1e-12)
    assert chance @ (weight * rewards[log.item]) == pytest.approx(value, rel=1e-12)
    short, _ = importance_weights(log, np.tile(PI, (12, 1)), cascade=True)
    assert abs(chance @ (short * rewards[log.item]) - value) > 0.01  # this user is no cascade


def test_a_cascade_needs_the_places_down_to_the_one_used():
    """The user takes the first tool with a probability of its own, otherwise the second."""
    takes, rewards = np.array([0.9, 0.2, 0.5, 0.7]), np.array([0.1, 0.6, 0.3, 0.9])
    mean, mean_weight, second = 0.0, 0.0, {}
    for place in (0, 1):
        log, chance = slates_log(np.full(12, place))
        first = np.array(SLATES)[:, 0]
        chance = chance * (takes[first] if place == 0 else 1 - takes[first])
        for cascade in (True, False):
            weight, _ = importance_weights(log, np.tile(PI, (12, 1)), cascade=cascade)
            second[cascade] = second.get(cascade, 0) + chance @ weight**2
            if cascade:
                mean += chance @ (weight * rewards[log.item])
                mean_weight += chance @ weight
    value = sum(
        np.prod(places(PI, (a, b))) * (takes[a] * rewards[a] + (1 - takes[a]) * rewards[b])
        for a, b in SLATES
    )
    assert mean == pytest.approx(value, rel=1e-12)
    assert mean_weight == pytest.approx(1, rel=1e-12)
    assert second[True] < 0.9 * second[False]


def test_a_deterministic_round_supports_only_a_policy_that_shows_the_same_tool():
    log = make_log([0, 0, 1, 1], [1, 0, 1, 0], [1.0, 1.0, 0.5, 1.0])
    probabilities = np.array([[1, 0, 0], [0.9, 0.1, 0], [0.2, 0.8, 0], [0, 0, 1]], np.float64)
    weight, bare = importance_weights(log, probabilities)
    np.testing.assert_array_equal(bare, [False, True, False, True])
    np.testing.assert_allclose(weight, [1, 0.9, 1.6, 0])
    known = log._replace(probabilities=np.array([[1, 0, 0], [1, 0, 0], [0, 0.5, 0.5], [0, 1, 0]]))
    _, bare = importance_weights(known, probabilities)
    np.testing.assert_array_equal(bare, [False, True, True, True])
    # An index lists its first tool's followers deterministically, which another policy would not,
    # so the log lacks support. Followers do not matter if the policy never shows the first tool, or
    # if the first tool is used.
    shown = {"slate": [[0, 1], [0, 1]], "by_position": [[0.5, 1], [0.5, 1]]}
    listed = make_log([0, 0], [1, 1], [0.5, 0.5], **shown)
    probabilities = np.array([[0.4, 0.3, 0.3], [0.0, 0.5, 0.5]])
    weight, bare = importance_weights(listed, probabilities)
    np.testing.assert_array_equal(bare, [True, False])
    assert weight[1] == 0
    weight, bare = importance_weights(listed, probabilities, cascade=True)
    np.testing.assert_allclose(weight, [0.8, 0])
    assert not bare.any()


def test_missing_and_zero_probabilities_are_refused():
    log = make_log([0, 1], [1, 1], [0.5, np.nan])
    with pytest.raises(ValueError, match=r"lacks the probability of position 1 in round 1"):
        importance_weights(log, np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match=r"lacks the probability of position 1 in round 0"):
        importance_weights(make_log([0], [1], [0.0]), np.full((1, 2), 0.5))
    slates = make_log([0], [1], [0.5], slate=[[0, 1]], by_position=[[0.5, np.nan]])
    with pytest.raises(ValueError, match=r"lacks the probability of position 2 in round 0"):
        importance_weights(slates, np.full((1, 3), 1 / 3))
    certain = np.array([[1.0, 0, 0]])
    known = slates._replace(by_position=np.array([[0.5, 0.6]]))
    with pytest.raises(ValueError, match=r"without probabilities .*below.*policies.softmax"):
        importance_weights(known, certain)
    weight, _ = importance_weights(known, certain[:, ::-1])
    assert weight == 0


def test_the_effective_sample_size_counts_equal_weights():
    assert effective_sample_size(np.full(50, 0.3)) == pytest.approx(50)
    assert effective_sample_size(np.r_[np.zeros(90), np.ones(10)]) == pytest.approx(10)
    assert effective_sample_size(np.array([1.0, 3.0])) == pytest.approx(1.6)
    assert effective_sample_size(np.zeros(3)) == 0
