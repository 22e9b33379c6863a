"""Rehearsal against the same updates made by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.online import learner, lenses, preconditioners, projections, trainer
from jaxret.online.adaptive import adaptive
from jaxret.online.rehearsal import draw_key, rehearsing
from jaxret.testing import check_learner
from jaxret.types import Choice

STEPS = {"tau": 0.2, "eta": 0.05}
INNER = learner.greedy(**STEPS)


ON_THE_SPHERE = learner.orag(tau=0.2, eta=0.002, projection=projections.sphere())


@pytest.mark.parametrize("inner", [INNER, ON_THE_SPHERE], ids=lambda rule: rule.name)
def test_rehearsing_learners_keep_the_common_promises(inner):
    check_learner(rehearsing(inner, again=2, capacity=9))


def test_so_does_one_that_learns_a_lens():
    inner = adaptive(INNER, lens=lenses.linear(rate=0.5))
    check_learner(rehearsing(inner, again=2, capacity=100))


def rounds(n):
    rng = np.random.default_rng(1)
    queries = jnp.asarray(rng.normal(size=(n, 4)), jnp.float32)
    return [
        (queries[t], Choice(item=jnp.asarray(t % 3), propensity=jnp.asarray(0.5)), float(t % 2))
        for t in range(n)
    ]


def play(rule, state, query, choice, reward):
    return rule.update(state, query, choice, jnp.asarray(reward), jnp.array([-1]))[0]


def test_each_round_is_followed_by_past_ones_at_once_that_the_ring_still_holds():
    rule = rehearsing(INNER, again=3, capacity=4, seed=5)
    theta, here = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)), jnp.float32), [True] * 3
    state, plain = rule.init(theta, jnp.array(here)), INNER.init(theta, jnp.array(here))
    past = rounds(7)
    for t, now in enumerate(past):
        state, plain = play(rule, state, *now), play(INNER, plain, *now)
        ring = [max(s for s in range(t + 1) if s % 4 == slot) for slot in range(min(t + 1, 4))]
        drawn = jax.random.randint(draw_key(5, t), (3,), 0, len(ring))
        moved = [play(INNER, plain, *past[ring[int(i)]]).theta - plain.theta for i in drawn]
        plain = plain._replace(theta=plain.theta + sum(moved))
        np.testing.assert_allclose(state.theta, plain.theta, rtol=1e-5)
    assert state.t == 7 == state.inner.t


@pytest.mark.parametrize(
    "lens",
    [
        lenses.plain(),
        lenses.linear(rate=0.5),
        lenses.low_rank(rate=0.5, rank=2),
        lenses.centred(rate=0.5),
    ],
    ids=lambda lens: lens.name,
)
def test_one_old_round_is_the_update_itself(lens):
    inner = adaptive(
        ON_THE_SPHERE, lens=lens, preconditioner=preconditioners.second_moment(ridge=3.0)
    )
    theta = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)), jnp.float32)
    state = inner.init(theta, jnp.array([True] * 3))
    for query, choice, reward in rounds(3):
        new = play(inner, state, query, choice, reward)
        one = jax.tree.map(lambda x: x[None], (query, choice, jnp.asarray(reward)))
        old = inner.rehearse(state, *one, jnp.ones(1))
        for ours, theirs in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
            if ours is not old.t:
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        state = new


def test_tools_that_have_gone_are_not_spoken_of():
    rule = rehearsing(INNER, again=4, capacity=4)
    state = rule.init(jnp.eye(3, 4), jnp.array([True] * 3))
    query, choice, _ = rounds(1)[0]
    state = play(rule, state, query, choice, 1.0)  # tool 0
    gone = state._replace(available=jnp.array([False, True, True]))
    other = choice._replace(item=jnp.asarray(1))
    after = play(rule, gone, query, other, 0.0)
    np.testing.assert_array_equal(after.theta[0], state.theta[0])
    assert np.abs(after.theta[1] - state.theta[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"again": 0, "capacity": 1}, "again must be >= 1, got 0"),
        ({"again": 1, "capacity": 0}, "capacity must be >= 1, got 0"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        rehearsing(INNER, **settings)


def test_a_learner_that_is_told_labels_is_refused():
    with pytest.raises(ValueError, match="'full_information' is told labels"):
        rehearsing(learner.full_information(**STEPS), again=1, capacity=1)


def test_a_learner_that_cannot_is_refused():
    paper = trainer.minibatch_adamw(tau=1.0, eta=1e-5, batch=4)
    with pytest.raises(ValueError, match="cannot rehearse: take a rank-one learner"):
        rehearsing(paper, again=1, capacity=1)
