"""The numbers of each round by their formulas, tool by tool, with the reward model of its block."""

import numpy as np
import pytest

from jaxret.offline import reward_model
from jaxret.offline.off_policy import go_through
from jaxret.offline.snapshots import Target
from tests.offline.conftest import make_log

ROUNDS, TOOLS, H = 50, 5, 1.5
RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(TOOLS), ROUNDS)
PI = RNG.dirichlet(np.ones(TOOLS), ROUNDS)
PI[::3] = np.eye(TOOLS)[RNG.integers(TOOLS, size=len(PI[::3]))]  # deterministic in some rounds
SCORES = RNG.normal(size=(ROUNDS, TOOLS))
ITEM = np.array([RNG.choice(TOOLS, p=p) for p in P])
REWARD = RNG.integers(0, 2, ROUNDS).astype(float)
GROUPS = np.array([0, 1, 1, 0, 2])
USED = P[np.arange(ROUNDS), ITEM]


def worked_out(**log):
    target = Target(probabilities=lambda part: PI[part], scores=lambda part: SCORES[part])
    return go_through(make_log(ITEM, REWARD, USED, **log), target, groups=GROUPS, truncation=H)


def test_inputs_of_each_round_equal_a_loop_over_tools():
    found = worked_out(probabilities=P)
    seen = reward_model.features(SCORES, SCORES.shape)
    for part in reward_model.blocks(ROUNDS):
        before = np.arange(part.start)
        model = reward_model.fit(seen[before, ITEM[before]], ITEM[before], REWARD[before], TOOLS)
        for t in range(part.start, part.stop):
            a, y, m = ITEM[t], REWARD[t], reward_model.predict(model, seen[[t]])[0]
            w = PI[t] / P[t]
            assert found.weight[t] == pytest.approx(w[a])
            assert found.model[t] == pytest.approx(m[a])
            assert found.expected[t] == pytest.approx(PI[t] @ m)
            assert found.second[t] == pytest.approx(P[t] @ w**2)
            for side, reward, guess in ((found.low, y, m), (found.high, 1 - y, 1 - m)):
                most = [H / weight if weight else np.inf for weight in w]
                guess = np.minimum(guess, most)
                assert side[t] == pytest.approx(PI[t] @ guess + w[a] * (reward - guess[a]))
            mine = GROUPS[a] == GROUPS
            assert found.group_weight[t] == pytest.approx(PI[t, mine].sum() / P[t, mine].sum())
    assert (found.low >= -H).all()
    assert (found.high >= -H).all()
    assert (found.low < -H / 2).any()


def test_quantities_that_need_unknown_probabilities_are_nan():
    found, known = worked_out(), worked_out(probabilities=P)
    for name in ("weight", "reward", "model", "expected"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name))
    for name in ("second", "group_weight", "low", "high"):
        assert np.isnan(getattr(found, name)).all()
    slates = {"slate": np.stack([ITEM, (ITEM + 1) % TOOLS], axis=1)}
    slates |= {"by_position": np.stack([USED, np.full(ROUNDS, 0.4)], axis=1)}
    PI_soft = np.full((ROUNDS, TOOLS), 1 / TOOLS)
    target = Target(probabilities=lambda part: PI_soft[part], scores=None)
    found = go_through(make_log(ITEM, REWARD, USED, **slates), target, truncation=H)
    np.testing.assert_allclose(found.weight, (1 / 5) / USED * (1 / 4) / 0.4)
    assert np.isnan([found.model, found.expected, found.low]).all()
