"""Lenses and preconditioners against autodiff, a matrix inverse and a sum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret.online import learner, lenses, preconditioners, projections
from jaxret.online.adaptive import adaptive
from jaxret.online.environment import Environment
from jaxret.online.replay import replay
from jaxret.testing import check_learner
from jaxret.types import Choice, Stream

STEPS = {"tau": 0.2, "eta": 0.02}
TOLD = learner.full_information(**STEPS)
ONE_BIT = learner.greedy(**STEPS)


@pytest.mark.parametrize(
    "parts",
    [
        {"lens": lenses.linear(rate=0.5)},
        {"lens": lenses.low_rank(rate=0.5, rank=3)},
        {"lens": lenses.centred(rate=0.5)},
        {"preconditioner": preconditioners.second_moment(ridge=5.0)},
        {"lens": lenses.linear(rate=1.0), "preconditioner": preconditioners.by_row()},
    ],
    ids=["linear", "low_rank", "centred", "second_moment", "linear+by_row"],
)
def test_adaptive_learners_keep_the_common_promises(parts):
    check_learner(adaptive(learner.greedy(**STEPS, projection=projections.sphere()), **parts))


@pytest.fixture
def problem():
    keys = jax.random.split(jax.random.key(3), 2)
    theta = jax.random.normal(keys[0], (7, 4))
    queries = jax.random.normal(keys[1], (9, 4))
    labels = jnp.arange(9, dtype=jnp.int32)[:, None] % 7
    return theta, Stream(queries=queries, labels=labels, order=jnp.arange(40) % 9)


def test_with_neither_it_is_the_plain_learner_round_for_round(problem):
    theta, stream = problem
    plain = learner.orag(**STEPS, projection=projections.ball())
    runs = [
        replay(rule, rule.init(theta, jnp.ones(7, bool)), Environment(), stream, jax.random.key(0))
        for rule in (adaptive(plain), plain)
    ]
    np.testing.assert_array_equal(runs[0][1].item, runs[1][1].item)
    np.testing.assert_allclose(runs[0][0].theta, runs[1][0].theta, rtol=1e-5)


def told(rule, state, query, label):
    """One update of a learner that is told the label."""
    choice = Choice(item=jnp.asarray(0), propensity=jnp.asarray(1.0))
    return rule.update(state, query, choice, jnp.asarray(0.0), jnp.array([label]))[0]


@pytest.mark.parametrize(
    ("lens", "see"),
    [
        (lenses.linear(rate=1.0), lambda glass, q: q + glass @ q),
        (lenses.low_rank(rate=1.0, rank=2), lambda glass, q: q + glass[0] @ (glass[1] @ q)),
    ],
    ids=["linear", "low_rank"],
)
def test_a_lens_and_the_rows_descend_the_gradient_of_the_loss(problem, lens, see):
    theta, stream = problem
    rule = adaptive(TOLD, lens=lens)
    state = rule.init(theta, jnp.ones(7, bool))
    state = told(rule, state, stream.queries[1], 2)  # away from the start, where A is zero
    query, label = stream.queries[0], 5

    def loss(theta, glass):
        return -jax.nn.log_softmax(theta @ see(glass, query) / STEPS["tau"])[label]

    slope = jax.grad(loss, argnums=(0, 1))(state.theta, state.glass)
    after = told(rule, state, query, label)
    for before, now, down in zip(
        *map(jax.tree.leaves, ((state.theta, state.glass), (after.theta, after.glass), slope)),
        strict=True,
    ):
        np.testing.assert_allclose(now, before - STEPS["eta"] * down, atol=1e-5)
        assert np.abs(down).max() > 1e-3


def test_rankings_look_through_the_lens(problem):
    theta, stream = problem
    lens = lenses.linear(rate=1.0)
    rule = adaptive(TOLD, lens=lens)
    state = told(rule, rule.init(theta, jnp.ones(7, bool)), stream.queries[0], 5)
    expected = np.stack([q + state.glass @ q for q in stream.queries])
    np.testing.assert_allclose(rule.see(state, stream.queries), expected, rtol=1e-5)


def test_a_centred_lens_takes_out_the_mean_of_the_queries_before(problem):
    """Nothing of the query itself: its answer must not depend on when it is asked."""
    theta, stream = problem
    rule = adaptive(TOLD, lens=lenses.centred(rate=1e-9, share=0.5, count=2.0))
    state = rule.init(theta, jnp.ones(7, bool))
    for query in stream.queries[:3]:
        state = told(rule, state, query, 5)
    queries = np.asarray(stream.queries)
    expected = queries - 0.5 * queries[:3].sum(axis=0) / (3 + 2.0)
    np.testing.assert_allclose(rule.see(state, stream.queries), expected, atol=1e-6)


def test_the_second_moment_is_inverted():
    queries = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    rule = preconditioners.second_moment(ridge=3.0)
    memory, c = rule.init(5, 4, jnp.float32), jnp.ones(5)
    for t, query in enumerate(queries, start=1):
        memory, same, got = rule.apply(memory, c, jnp.asarray(query))
        moment = (3.0 * np.eye(4) + 4 * queries[:t].T @ queries[:t]) / (3.0 + t)
        np.testing.assert_allclose(got, np.linalg.solve(moment, query), rtol=1e-4)
        np.testing.assert_array_equal(same, c)


def test_a_row_that_has_moved_moves_less():
    rule = preconditioners.by_row()
    memory = rule.init(2, 3, jnp.float32)
    c, u = jnp.array([2.0, 0.0]), jnp.array([0.0, 3.0, 4.0])
    for past in (1, 2):
        memory, got, same = rule.apply(memory, c, u)
        np.testing.assert_allclose(got, [2.0 / np.sqrt(1 + past * 4 * 25), 0.0], rtol=1e-6)
        np.testing.assert_array_equal(same, u)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lenses.centred(rate=1.0, share=1.5), "share must be in .0, 1., got 1.5"),
        (lambda: lenses.linear(rate=0.0), "rate must be > 0, got 0.0"),
        (lambda: lenses.low_rank(rate=1.0, rank=0), "rank must be >= 1, got 0"),
        (lambda: preconditioners.second_moment(ridge=0.0), "ridge must be > 0, got 0.0"),
    ],
)
def test_settings_outside_their_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_learner_that_is_not_rank_one_is_refused():
    with pytest.raises(ValueError, match="is not rank one: it has no parts"):
        adaptive(adaptive(ONE_BIT))
