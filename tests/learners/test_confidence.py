"""Calibrated probabilities against NumPy, and answers that may be empty."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.special import expit, softmax

import jaxret as jr
from jaxret.learners.confidence import is_calibrated
from jaxret.learners.mixture import mixture
from jaxret.learners.recalibration import FORGET, TRUST, first_recalibration, learn, recalibrate
from jaxret.testing import check_learner, quick_jit
from jaxret.types import Choice, Feedback

TAUS = [0.05, 0.3]


@pytest.fixture(scope="module")
def half_right():
    """Make a task in which no tool is right for every second query."""
    rng = np.random.default_rng(5)
    theta = rng.normal(size=(6, 4))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    labels = rng.integers(6, size=80)
    queries = theta[labels] + 0.4 * rng.normal(size=(80, 4))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    labels = np.stack([labels, np.full(80, -1)], axis=1)
    labels[1::2] = -1
    return jr.Task.from_arrays(theta, queries, labels, none_right=True, name="half")


EXPERTS = mixture([jr.grid(jr.frozen, tau=TAUS)])


class ByHand:
    """Online beta calibration in float64."""

    def __init__(self):
        self.line, self.precision = np.array([1.0, 1.0, 0.0]), TRUST * np.eye(3)

    def features(self, p):
        p = np.clip(p, 1e-4, 1 - 1e-4)
        return np.array([np.log(p), -np.log(1 - p), 1.0])

    def predict(self, p):
        return expit(self.features(p) @ self.line)

    def learn(self, p, y):
        x, q = self.features(p), self.predict(p)
        precision = self.precision + q * (1 - q) * np.outer(x, x)
        self.line = self.line + np.linalg.solve(precision, (y - q) * x)
        self.line[:2] = np.maximum(self.line[:2], 0.01)
        self.precision = (1 - FORGET) * precision + FORGET * TRUST * np.eye(3)


def test_recalibration_is_the_newton_step_by_hand():
    rng, by_hand = np.random.default_rng(0), ByHand()
    p = rng.random(60)
    y = np.float32(rng.random(60) < p**2)

    @quick_jit
    def learnt(p, y):
        def one(now, line):
            return learn(now, *line), recalibrate(now, line[0])

        first = first_recalibration(jnp.float32)
        now, predicted = lax.scan(one, first, (p, y))
        grid = jnp.linspace(0.001, 0.999, 50)
        return recalibrate(first, p), predicted, now.line, recalibrate(now, grid)

    unchanged, predicted, line, grid = learnt(np.float32(p), y)
    np.testing.assert_allclose(unchanged, p, atol=1e-6)
    for sure, bit, found in zip(p, y, predicted, strict=True):
        assert found == pytest.approx(by_hand.predict(sure), abs=2e-4)
        by_hand.learn(sure, bit)
    np.testing.assert_allclose(line, by_hand.line, atol=2e-3)
    assert (np.diff(grid) > 0).all()
    assert grid[25] < 0.4  # the bits come with probability p squared


def test_several_bits_of_a_round_are_one_step():
    p, y = np.array([0.2, 0.7]), np.array([1.0, 0.0])
    now = quick_jit(lambda *bits: learn(first_recalibration(jnp.float32), *bits))(p, y)
    x = np.stack([np.log(p), -np.log(1 - p), np.ones(2)], axis=1)
    precision = TRUST * np.eye(3) + (x.T * (p * (1 - p))) @ x
    line = np.array([1.0, 1.0, 0.0]) + np.linalg.solve(precision, x.T @ (y - p))
    np.testing.assert_allclose(now.line, line, atol=1e-4)


@pytest.mark.parametrize("form", ["scan", "blocked"])
def test_a_mixture_reports_its_mixed_probability_before_each_bit(half_right, form):
    run = jr.simulate(EXPERTS, half_right, form=form)
    assert run.form == form
    outer = ByHand()
    lines, precisions = np.tile([1.0, 0.0], (2, 1)), np.tile(10 * np.eye(2), (2, 1, 1))
    weights = np.full(2, 0.5)
    for t, query in enumerate(run.order[0]):
        z = half_right.theta.astype(float) @ half_right.queries[query].astype(float)
        p = np.stack([softmax(z / tau) for tau in TAUS])
        odds = np.log(p) - np.log1p(-p)
        each = expit(lines[:, :1] * odds + lines[:, 1:])
        item = run.trace.item[0, t]
        assert item == (weights @ each).argmax()
        mixed, y = float(weights @ each[:, item]), float(run.trace.success[0, t])
        assert run.trace.confidence[0, t] == pytest.approx(outer.predict(mixed), abs=5e-3)
        outer.learn(mixed, y)
        sure = np.clip(each[:, item], 1e-3, 1 - 1e-3)
        for g in range(2):
            x, q = np.array([odds[g, item], 1.0]), each[g, item]
            precisions[g] += q * (1 - q) * np.outer(x, x)
            step = np.linalg.solve(precisions[g], (y - q) * x)
            lines[g] = np.maximum(lines[g] + step, [0.1, -np.inf])
        weights = weights * np.where(y, sure, 1 - sure)
        weights = 0.99 * weights / weights.sum() + 0.01 * 0.5
    assert t == 79


def test_the_confidence_changes_nothing_that_is_shown_or_learnt(half_right):
    run = jr.simulate(EXPERTS, half_right)
    state = run.state(0)
    other = state._replace(extra=state.extra._replace(outer=first_recalibration(jnp.float32)))
    query = half_right.queries[0]

    @quick_jit
    def found(state):
        ranking = EXPERTS.logits(state, query), EXPERTS.scores(state, query[None])
        return ranking, jr.confidence(EXPERTS, state, query)

    (ranking, sure), (same, unsure) = found(state), found(other)
    jax.tree.map(np.testing.assert_array_equal, ranking, same)
    assert not np.allclose(sure, unsure)


def test_a_wrapper_calibrates_any_softmax(half_right):
    inner = jr.greedy(tau=0.2, eta=0.02)
    run, plain = (
        jr.simulate(one, half_right, form="scan") for one in (jr.with_confidence(inner), inner)
    )
    np.testing.assert_array_equal(run.trace.item, plain.trace.item)
    np.testing.assert_allclose(run.states.theta, plain.states.theta, atol=1e-5)
    assert np.isnan(plain.trace.confidence).all()

    @quick_jit
    def logits(theta, queries, trace):
        def one(state, line):
            query, (item, propensity, reward) = line
            new = inner.update(state, query, Choice(item, propensity), Feedback(reward))
            return new, inner.logits(state, query)

        return lax.scan(one, inner.init(theta), (queries, trace))[1]

    item, propensity, reward, sure = (
        getattr(run.trace, name)[0] for name in ("item", "propensity", "reward", "confidence")
    )
    queries, by_hand = half_right.queries[run.order[0]], ByHand()
    z = np.asarray(logits(half_right.theta, queries, (item, propensity, reward)), float)
    for t, p in enumerate(softmax(z, axis=1)):
        assert sure[t] == pytest.approx(by_hand.predict(p[item[t]]), abs=5e-3)
        by_hand.learn(p[item[t]], reward[t])


def test_they_satisfy_the_contract():
    check_learner(jr.abstaining(jr.with_confidence(jr.greedy(tau=0.3, eta=0.01)), at_least=0.0))


def test_wrappers_keep_the_confidence(half_right):
    learners = (
        jr.with_confidence(jr.greedy(tau=0.3, eta=0.01)),
        jr.with_exploration(EXPERTS, 0.2),
        jr.guarded(EXPERTS, budget=1000),
        jr.abstaining(EXPERTS, at_least=0.0),
    )

    def found(learner, available):
        state = learner.init(half_right.theta, available)
        return jr.confidence(learner, state, half_right.queries[0])

    for available in (np.arange(6) >= 0, np.arange(6) > 0):
        p = np.array(quick_jit(lambda one=available: [found(x, one) for x in learners])())
        assert (p[:, ~available] == 0).all()
        assert ((p[:, available] > 0) & (p[:, available] < 1)).all()
    assert all(map(is_calibrated, learners))


def test_an_oracle_stays_as_it_is_where_no_tool_is_right(half_right):
    nothing = half_right.select(~half_right.answerable)
    run = jr.simulate(jr.with_labels(jr.mapped(map_every=8)), nothing)
    np.testing.assert_allclose(run.states.theta[0], nothing.theta, atol=1e-6)


@pytest.mark.parametrize("reward", [None, 0.7])
def test_an_empty_answer_is_right_where_no_tool_is(half_right, reward):
    environment = jr.Environment(empty_reward=reward)
    learner = jr.abstaining(EXPERTS, at_least=0.25)
    run = jr.simulate(learner, half_right, environment=environment)
    item, right = run.trace.item[0], half_right.answerable[run.order[0]]
    empty = item == -1
    assert 10 < empty.sum() < 70
    assert (empty & ~right).any()
    assert (empty & right).any()
    np.testing.assert_array_equal(run.trace.success[0][empty], ~right[empty])
    given = np.where(right, 0, 0.0 if reward is None else reward)
    np.testing.assert_allclose(run.trace.reward[0][empty], given[empty])
    labels = half_right.labels[run.order[0]]
    np.testing.assert_array_equal(
        run.trace.success[0][~empty], (labels == item[:, None]).any(axis=1)[~empty]
    )
    assert np.isnan(run.trace.confidence[0][empty]).all()
    assert (run.trace.confidence[0][~empty] >= 0.25).all()


def test_nothing_is_learnt_from_an_empty_answer(half_right):
    never = jr.abstaining(EXPERTS, at_least=1.0)
    run = jr.simulate(never, half_right, environment=jr.Environment(empty_reward=1.0))
    assert (run.trace.item == -1).all()
    first = quick_jit(never.init)(half_right.theta)
    np.testing.assert_array_equal(run.states.extra.log_weights[0], first.extra.log_weights)
    np.testing.assert_array_equal(run.states.extra.outer.line[0], first.extra.outer.line)
    assert run.states.t[0] == 80


def test_a_threshold_of_zero_changes_nothing(half_right):
    always = jr.abstaining(EXPERTS, at_least=0.0)
    runs = [jr.simulate(one, half_right, form="scan") for one in (always, EXPERTS)]
    np.testing.assert_array_equal(runs[0].trace.item, runs[1].trace.item)


def test_what_cannot_be_is_refused(half_right, tmp_path):
    greedy = jr.greedy()
    with pytest.raises(ValueError, match=r"'greedy' does not say .*jr.with_confidence"):
        jr.confidence(greedy, None, None)
    with pytest.raises(ValueError, match="'greedy' does not say how probable"):
        jr.abstaining(greedy)
    with pytest.raises(ValueError, match=r"at_least must be in \[0, 1\], got 2"):
        jr.abstaining(EXPERTS, at_least=2)
    with pytest.raises(ValueError, match="'mixture' is calibrated already"):
        jr.with_confidence(EXPERTS)
    with pytest.raises(ValueError, match="'linucb' has no softmax"):
        jr.with_confidence(jr.linucb())
    several = jr.abstaining(jr.with_confidence(jr.orag(k=2)))
    with pytest.raises(ValueError, match="abstaining learner shows must be one, got 2"):
        jr.simulate(several, half_right)
    with pytest.raises(ValueError, match="a log has no line for an empty answer"):
        jr.simulate(jr.abstaining(EXPERTS, at_least=1.0), half_right, log=tmp_path)
    with pytest.raises(ValueError, match=r"empty_reward must be None or in \[0, 1\], got 3"):
        jr.simulate(EXPERTS, half_right, environment=jr.Environment(empty_reward=3))
