"""Experience replay against the same updates made one by one."""

from functools import lru_cache, partial

import jax
import numpy as np
import pytest

from jaxret.learners import presets
from jaxret.learners.rank_one import relearn, rule_of
from jaxret.learners.replay import draw_key, with_experience_replay
from jaxret.learners.wrappers import with_preconditioner, with_query_map
from jaxret.rules import preconditioners, projections, query_maps
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback
from tests.problems import same

STEPS = {"tau": 0.2, "eta": 0.05}
INNER = presets.greedy(**STEPS, projection=projections.none())
ON_THE_SPHERE = presets.orag(tau=0.2, eta=0.002)


@pytest.mark.slow
def test_a_replaying_learner_satisfies_the_contract():
    check_learner(with_experience_replay(ON_THE_SPHERE, per_round=2, capacity=9))


THETA = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def rounds(n):
    queries = np.random.default_rng(1).normal(size=(n, 4)).astype(np.float32)
    return [
        (queries[t], Choice(np.int32(t % 3), np.float32(0.5)), np.float32(t % 2)) for t in range(n)
    ]


@lru_cache
def compiled(fn):
    return quick_jit(fn)


def learn(rule, state, query, choice, reward, observed=True):
    return compiled(rule.update)(state, query, choice, Feedback(reward, np.asarray(observed)))


def test_each_round_replays_rounds_of_the_buffer_in_one_step():
    rule = with_experience_replay(INNER, per_round=3, capacity=4, seed=5)
    state, plain = compiled(rule.init)(THETA), compiled(INNER.init)(THETA)
    draw = quick_jit(lambda t, n: jax.random.randint(draw_key(5, t), (3,), 0, n))
    past = rounds(7)
    for t, now in enumerate(past):
        state, plain = learn(rule, state, *now), learn(INNER, plain, *now)
        ring = [max(s for s in range(t + 1) if s % 4 == slot) for slot in range(min(t + 1, 4))]
        samples = np.asarray(draw(t, len(ring)))
        moved = [learn(INNER, plain, *past[ring[int(i)]]).theta - plain.theta for i in samples]
        plain = plain._replace(theta=plain.theta + sum(moved))
        np.testing.assert_allclose(state.theta, plain.theta, rtol=1e-5)
    assert state.t == 7 == state.extra[2]  # both count rounds


@pytest.mark.parametrize(
    "query_map",
    [
        None,
        query_maps.linear(rate=0.5),
        query_maps.low_rank(rate=0.5, rank=2),
        query_maps.mean_centred(rate=0.5),
    ],
    ids=lambda query_map: "none" if query_map is None else query_map.name,
)
def test_replaying_one_round_equals_its_update(query_map):
    inner = with_preconditioner(ON_THE_SPHERE, preconditioners.second_moment(ridge=3.0))
    inner = inner if query_map is None else with_query_map(inner, query_map)
    state, again = compiled(inner.init)(THETA), quick_jit(partial(relearn, rule_of(inner)))
    for query, choice, reward in rounds(3):
        new = learn(inner, state, query, choice, reward)
        one = jax.tree.map(lambda x: x[None], (query, choice, reward))
        old = again(state, *one, np.ones(1, np.float32))
        assert old.t == state.t
        near = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
        jax.tree.map(near, old._replace(t=new.t), new)
        state = new


def test_rounds_of_removed_tools_are_not_replayed():
    rule = with_experience_replay(INNER, per_round=4, capacity=4)
    query, choice, _ = rounds(1)[0]
    state = learn(rule, compiled(rule.init)(THETA), query, choice, np.float32(1))  # shows tool 0
    gone = state._replace(available=np.array([False, True, True]))
    other = choice._replace(item=np.int32(1))
    after = learn(rule, gone, query, other, np.float32(0))
    np.testing.assert_array_equal(after.theta[0], state.theta[0])
    assert np.abs(after.theta[1] - state.theta[1]).max() > 1e-3


def test_a_round_without_feedback_is_not_stored():
    rule = with_experience_replay(INNER, per_round=2, capacity=4)
    state = learn(rule, compiled(rule.init)(THETA), *rounds(1)[0])
    after = learn(rule, state, *rounds(2)[1], observed=False)
    assert after.t == state.t + 1
    same(after._replace(t=state.t), state)


def test_each_item_of_a_slate_is_stored_with_its_reward():
    rule = with_experience_replay(INNER, per_round=1, capacity=3)
    query, state = rounds(1)[0][0], compiled(rule.init)(THETA)
    for items in ([0, 2], [1, 0]):
        choice = Choice(np.int32(items), np.float32([0.5, 0.4]))
        state = learn(rule, state, query, choice, np.float32([0.3, 1.0]))
    past, count = state.extra[1:]
    assert (past.item.tolist(), count) == ([0, 2, 1], 4)  # the fourth round replaced the first
    np.testing.assert_allclose(past.reward, [1.0, 1.0, 0.3])
    four = Choice(item=np.arange(4) % 3, propensity=np.ones(4))
    with pytest.raises(ValueError, match="capacity must be >= 4, the items of a slate, got 3"):
        jax.eval_shape(rule.update, state, query, four, Feedback(np.ones(4)))
