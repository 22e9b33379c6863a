"""Every learner keeps the common promises, and the check notices those that do not."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxret import sharding
from jaxret.online import estimators, learner, policy, projections, schedules
from jaxret.online.learner import Learner, coefficients
from jaxret.testing import check_learner
from jaxret.types import Choice

STEPS = {"tau": 0.2, "eta": 0.02}


def shared_map(*, tau: float, eta: float) -> Learner:
    """Not rank one: the rows stay, a matrix A shared by all is learned; logits Theta A q."""

    class State(NamedTuple):
        theta: jax.Array
        available: jax.Array
        t: jax.Array
        matrix: jax.Array

    rule = estimators.importance_weighted()
    mapped = lambda state, q: learner.logits(state, state.matrix @ q, tau)  # noqa: E731

    def init(theta, available):
        start = learner.frozen().init(theta, available)
        return State(**start._asdict(), matrix=jnp.eye(theta.shape[1], dtype=theta.dtype))

    def act(state, query, key):
        return policy.softmax().show(key, mapped(state, query), None)

    def update(state, query, choice, reward, labels):
        z = mapped(state, query)
        c = coefficients(rule, z, choice, reward, labels, None)
        matrix = state.matrix - eta / tau * jnp.outer(state.theta.T @ c, query)
        return state._replace(matrix=matrix, t=state.t + 1), learner.measure(z, labels, None)

    return Learner("shared_map", init, act, update, rule=None)


LEARNERS = [
    learner.orag(**STEPS, projection=projections.sphere(), schedule=schedules.inverse_sqrt()),
    learner.orag(**STEPS, k=3, projection=projections.ball()),
    learner.chosen_only(**STEPS),
    learner.greedy(**STEPS, estimator=estimators.debiased(flip_rate=0.1)),
    learner.banditron(**STEPS, epsilon=0.2, projection=projections.sphere()),
    learner.full_information(**STEPS, projection=projections.ball()),
    learner.frozen(),
]


@pytest.mark.parametrize("rule", LEARNERS, ids=lambda rule: rule.name)
def test_learners_keep_the_common_promises(rule):
    check_learner(rule)


def test_so_does_a_rule_that_is_not_rank_one_on_a_problem_of_ones_choice():
    key = jax.random.key(1)
    check_learner(shared_map(tau=0.2, eta=0.01), items=13, width=5, rounds=31, key=key)
    jax.random.uniform(key)  # the caller's key is not used up


ORAG = learner.orag(**STEPS)


def altered(change, rule=ORAG.rule):
    """ORAG whose update changes the state once more; ``rule=None`` admits that it does."""

    def update(*args):
        state, info = ORAG.update(*args)
        return change(state), info

    return ORAG._replace(update=update, rule=rule)


def estimating(estimator):
    return learner.rank_one("broken", estimator=estimator, policy=policy.softmax(), **STEPS)


peeking = estimators.Estimator(
    "peeking", lambda seen: seen.probs - seen.target, unbiased=True, bandit=True
)
blind = ORAG._replace(
    act=lambda state, q, key: policy.softmax().show(key, state.theta @ q / 0.2, None)
)
overconfident = estimators.implicit_exploration(gamma=1e-3)._replace(unbiased=True)
BROKEN = {
    "update turns a state": altered(lambda s: s._replace(theta=s.theta.astype(jnp.float16))),
    "was compiled 2 times": altered(lambda s: s._replace(t=jnp.where(s.t > 0, 1, 2))),
    "update turns t = 0 into 0": altered(lambda s: s._replace(t=jnp.zeros_like(s.t))),
    "reads labels: others move the state": estimating(peeking),
    "claims no bias and is off by": estimating(overconfident),
    "absent tools were chosen in": blind,
    "rows of absent tools moved by": altered(lambda s: s._replace(theta=0.99 * s.theta), None),
    "blocked replay and the plain scan": altered(
        lambda s: s._replace(theta=jnp.where(s.available[:, None], 0.99 * s.theta, s.theta))
    ),
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_promise_is_named(sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_learner(BROKEN[sentence])


def start(rule, available=(True, True, True)):
    theta = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    return rule.init(theta, jnp.array(available))


def test_rows_start_projected():
    state = start(learner.orag(**STEPS, projection=projections.sphere(radius=2.0)))
    np.testing.assert_allclose(state.theta, [[2, 0], [0, 2], [1.2, 1.6]], rtol=1e-6)


def test_one_round_of_orag_is_the_one_worked_by_hand():
    rule = learner.orag(tau=0.5, eta=0.1)
    choice = Choice(item=jnp.asarray(1), propensity=jnp.asarray(0.25))
    query, labels = jnp.array([1.0, 0.0]), jnp.array([1, -1])
    # logits q . theta / tau = 2, 0, 1.2; e^2, e^0, e^1.2 = 7.3890561, 1, 3.3201169
    p = np.array([7.3890561, 1.0, 3.3201169]) / 11.709173
    state, info = rule.update(start(rule), query, choice, jnp.asarray(1.0), labels)
    c = p - np.array([0, 1 / 0.25, 0])
    expected = np.array([[1, 0], [0, 1], [0.6, 0.8]]) - 0.2 * c[:, None] * [1, 0]  # eta / tau
    np.testing.assert_allclose(state.theta, expected, rtol=1e-6)
    assert state.t == 1
    described = [info.p_success, info.loss, info.inverse_p, info.logit_label, info.logit_sum]
    by_hand = [p[1], -np.log(p[1]), (1 / p).sum(), 0.0, 3.2]
    np.testing.assert_allclose(described, by_hand, rtol=1e-5, atol=1e-6)


def test_full_information_spreads_the_target_over_the_labels_that_are_there():
    rule = learner.full_information(tau=1.0, eta=1.0)
    choice = Choice(item=jnp.asarray(0), propensity=jnp.asarray(1.0))
    query, labels = jnp.array([0.0, 0.0]), jnp.array([0, 1, 2])
    query = query.at[0].set(1e-9)  # so small that p is even over what is there
    before = start(rule, available=(True, True, False))
    state, info = rule.update(before, query, choice, jnp.asarray(0.0), labels)
    np.testing.assert_allclose(info.loss, np.log(2), rtol=1e-6)  # the absent label does not count
    np.testing.assert_allclose(info.p_success, 1.0, rtol=1e-6)
    np.testing.assert_array_equal(state.theta, before.theta)  # p = target = 1/2, 1/2, 0


def test_a_round_without_any_label_is_described_by_zeros():
    rule = learner.orag(**STEPS)
    choice = Choice(item=jnp.asarray(0), propensity=jnp.asarray(0.5))
    query, unknown = jnp.array([0.6, 0.8]), jnp.array([-1, -1])
    _, info = rule.update(start(rule), query, choice, jnp.asarray(1.0), unknown)
    assert (info.p_success, info.loss, info.logit_label) == (0, 0, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: learner.orag(tau=0.0, eta=0.1), "tau must be > 0, got 0.0"),
        (lambda: learner.greedy(tau=1.0, eta=-0.1), "eta must be >= 0, got -0.1"),
        (lambda: learner.orag(**STEPS, divide_by="q"), "divide_by must be"),
        (lambda: learner.banditron(**STEPS, epsilon=2.0), r"epsilon must be in \[0, 1\], got 2.0"),
    ],
)
def test_settings_outside_their_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_tau_and_eta_may_be_swept_inside_one_program():
    def moved(tau, eta):
        rule = learner.full_information(tau=tau, eta=eta)
        choice = Choice(item=jnp.asarray(0), propensity=jnp.asarray(1.0))
        before = start(rule)
        state, _ = rule.update(
            before, jnp.array([0.6, 0.8]), choice, jnp.asarray(0.0), jnp.array([1])
        )
        return state.theta - before.theta

    grid = jnp.array([[0.5, 0.1], [0.5, 0.2], [1.0, 0.1]])
    steps = jax.jit(lambda grid: sharding.sweep(moved, *grid.T))(grid)
    np.testing.assert_allclose(steps[1], 2 * steps[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(steps[2], moved(1.0, 0.1), rtol=1e-4, atol=1e-6)
