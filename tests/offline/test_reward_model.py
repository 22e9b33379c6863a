"""The reward model minimises its loss, and each round uses a model of earlier rounds only."""

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

from jaxret.offline import reward_model
from jaxret.offline.off_policy import go_through
from jaxret.offline.snapshots import Target
from tests.offline.conftest import make_log


def problem(rounds=400, tools=6, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(rounds, tools))
    item = rng.integers(tools, size=rounds)
    success = expit(2 * scores[np.arange(rounds), item] - 1 + (item == 2))
    reward = (rng.random(rounds) < success).astype(float)
    return scores, item, reward


@pytest.mark.parametrize("rounds", [1, 31, 32, 33, 1_000, 10_000])
def test_blocks_cover_every_round_once_and_grow(rounds):
    parts = reward_model.blocks(rounds)
    covered = np.concatenate([np.arange(rounds)[part] for part in parts])
    np.testing.assert_array_equal(covered, np.arange(rounds))
    assert all(part.stop - part.start <= max(32, 0.25 * part.start + 1) for part in parts)
    assert len(parts) < 35


def test_features_do_not_depend_on_the_scale_of_scores_or_on_absent_tools():
    scores = problem()[0][:5]
    seen = reward_model.features(scores, scores.shape)
    np.testing.assert_allclose(reward_model.features(7 * scores - 3, scores.shape), seen, atol=1e-9)
    z = (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)
    np.testing.assert_allclose(seen[..., 1], z)
    np.testing.assert_allclose(seen[..., 2], z - z.max(axis=1, keepdims=True))
    absent = np.concatenate([scores, np.full((5, 1), -np.inf)], axis=1)
    seen_too = reward_model.features(absent, absent.shape)
    np.testing.assert_allclose(seen_too[:, :-1], seen)
    np.testing.assert_array_equal(seen_too[:, -1], 0)
    assert reward_model.features(None, (2, 3)).shape == (2, 3, 1)


def test_the_fit_is_the_optimum_and_the_offsets_are_shrunk_residuals():
    scores, item, reward = problem()
    seen = reward_model.features(scores, scores.shape)[np.arange(400), item]
    model = reward_model.fit(seen, item, reward, 7)

    def objective(b):
        z = seen @ b
        return (np.logaddexp(0, z) - reward * z).sum() + reward_model.RIDGE * b @ b / 2

    best = optimize.minimize(objective, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-8})
    np.testing.assert_allclose(model.weights, best.x, atol=1e-3)
    for tool in range(7):
        mine = item == tool
        residuals = reward[mine] - expit(seen[mine] @ model.weights)
        assert model.offsets[tool] == pytest.approx(residuals.sum() / (mine.sum() + 10), abs=1e-12)
    assert model.offsets[6] == 0
    every = reward_model.features(scores, scores.shape)
    predicted = reward_model.predict(model._replace(offsets=model.offsets[:6]), every)
    inner = expit(every @ model.weights) + model.offsets[:6]
    np.testing.assert_allclose(predicted, np.clip(inner, 0, 1))


def test_bits_that_are_all_alike_and_tools_that_are_sure_stay_finite():
    seen = np.ones((500, 1))
    for bit in (0.0, 1.0):
        model = reward_model.fit(seen, np.zeros(500, int), np.full(500, bit), 2)
        predicted = reward_model.predict(model, np.ones((1, 2, 1)))
        assert abs(predicted - bit).max() < 0.03
    nothing = reward_model.fit(seen[:0], np.zeros(0, int), np.zeros(0), 2)
    np.testing.assert_array_equal(reward_model.predict(nothing, np.ones((1, 2, 1))), [[0.5, 0.5]])


def test_the_model_of_a_round_is_fitted_on_earlier_rounds_only():
    scores, item, reward = problem()
    probabilities = np.full_like(scores, 1 / 6)
    target = Target(probabilities=probabilities.__getitem__, scores=scores.__getitem__)

    def models(reward):
        found = go_through(make_log(item, reward, np.full(400, 1 / 6)), target, truncation=1.0)
        return found.model, found.expected

    before = models(reward)
    for part in reward_model.blocks(400)[1:-1]:
        changed = reward.copy()
        changed[part.start :] = 1 - changed[part.start :]
        after = models(changed)
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one[: part.stop], other[: part.stop])
            assert (one[part.stop :] != other[part.stop :]).all()
    np.testing.assert_array_equal(before[0][:32], 0.5)
    right = expit(2 * scores[np.arange(400), item] - 1 + (item == 2))
    assert np.corrcoef(before[0][200:], right[200:])[0, 1] > 0.8
