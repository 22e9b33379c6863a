import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from jaxret.evaluation.estimate import Estimate
from jaxret.learners import presets
from jaxret.rules import estimators, policies, projections, schedules
from jaxret.theory.assumptions import bias_product, final_regrets, norm2
from jaxret.theory.theorems import debiased, describe, theorem_5_1, theorem_b2
from jaxret.types import Stream
from tests.theory.conftest import TIMES, failing, losses_and_steps

TAU, ETA = 0.3, 0.003
FREE = {"tau": TAU, "eta": ETA, "projection": projections.none()}
NOISY = ["label noise", "wrong rewards as frequent for every tool"]


def least(toy, eta):
    """Minimise the summed loss + ``||Theta_1 - U||^2 / (2 eta)`` over U by SciPy."""

    def objective(u):
        apart = u.reshape(toy.theta_1.shape) - toy.theta_1
        losses, c = losses_and_steps(apart + toy.theta_1, toy.queries, toy.labels, TAU)
        gradient = TIMES * c.T @ toy.queries / TAU + apart / eta
        return TIMES * losses.sum() + (apart**2).sum() / (2 * eta), gradient.ravel()

    found = minimize(objective, toy.theta_1.ravel(), jac=True, method="L-BFGS-B")
    assert found.success
    return jnp.asarray(found.x.reshape(toy.theta_1.shape), jnp.float32)


@pytest.fixture(scope="module")
def closest(toy):
    """Return the proximal comparator."""
    return least(toy, ETA)


@pytest.fixture(scope="module")
def near(clean, closest):
    return clean._replace(comparator=closest)


@pytest.fixture(scope="module")
def noisy(noisy, closest):
    return noisy._replace(comparator=closest)


def test_theorem_5_1_holds_against_the_proximal_comparator(near):
    bound, regret = theorem_5_1(near), Estimate.of(final_regrets(near))
    assert bound.holds
    assert regret.mean + 5 * regret.error < bound.value < 3 * regret.mean
    assert bound.stderr < 0.01 * bound.value


def test_theorem_5_1_holds_against_the_optimum_in_hindsight(toy, near):
    run = near._replace(comparator=least(toy, np.inf))
    assert theorem_5_1(run).holds
    assert final_regrets(near).mean() < final_regrets(run).mean() < theorem_5_1(run).value


def test_no_comparator_bounds_the_loss_of_the_run_better_than_the_proximal_one(near):
    def bounded_loss(comparator):
        run = near._replace(comparator=comparator)
        loss = np.asarray(near.trace.loss, np.float64).sum(axis=1).mean()
        return loss - final_regrets(run).mean() + theorem_5_1(run).value

    best = bounded_loss(near.comparator)
    away = near.comparator - near.theta_1
    for other in (near.theta_1, near.theta_1 + 0.9 * away, near.theta_1 + 1.1 * away):
        assert best < bounded_loss(other)


def test_the_terms_of_theorem_5_1_are_those_of_the_paper(near):
    terms = theorem_5_1(near).terms
    apart = np.asarray(near.theta_1, np.float64) - np.asarray(near.comparator, np.float64)
    p = np.asarray(near.trace.p_success, np.float64)
    np.testing.assert_allclose(norm2(near), np.full((96, 320), 1 / TAU**2), rtol=1e-6)
    second = (1 / p - 2 * p + 1) / TAU**2  # the queries are unit vectors
    np.testing.assert_allclose(terms["start"], (apart**2).sum() / (2 * ETA), rtol=1e-6)
    np.testing.assert_allclose(terms["variance"], ETA / 2 * second.sum(axis=1).mean(), rtol=1e-4)


def test_noisy_rewards_void_theorem_5_1_and_theorem_b2_covers_them(noisy):
    void, bound = theorem_5_1(noisy), theorem_b2(noisy, noise_rate=0.45)
    regret = Estimate.of(final_regrets(noisy))
    assert failing(void) == NOISY
    assert "void" in describe(void)
    assert regret.mean - 3 * regret.error > void.value
    assert bound.holds
    assert regret.mean + 5 * regret.error < bound.value


def test_the_bias_is_the_inner_product_with_the_bias_matrix(noisy):
    u, queries = np.asarray(noisy.comparator, np.float64), np.asarray(noisy.stream.queries)
    labels, order = np.asarray(noisy.stream.labels), np.asarray(noisy.stream.order)
    item, reward = np.asarray(noisy.trace.item), np.asarray(noisy.trace.reward)
    by_hand = np.zeros((3, order.shape[1]))
    for s, t in np.ndindex(by_hand.shape):  # Algorithm 1, with the choices and bits of the run
        if t == 0:
            theta = np.asarray(noisy.theta_1, np.float64)
        q, right = queries[order[s, t]] / TAU, labels[order[s, t], 0]
        signs = np.where(np.arange(len(theta)) == right, 1.0, -1.0)
        by_hand[s, t] = (np.outer(signs, q) * (theta - u)).sum()
        c = np.exp(theta @ q) / np.exp(theta @ q).sum()
        c[item[s, t]] -= reward[s, t] / c[item[s, t]]
        theta = theta - ETA * np.outer(c, q)
    assert by_hand.std() > 0.5
    np.testing.assert_allclose(bias_product(noisy)[:3], by_hand, atol=1e-3)


def test_the_debiased_rule_meets_its_bound_under_label_noise(toy, closest):
    rule = presets.debiased(noise_rate=0.1, **FREE)
    run = toy.run(rule, noise_rate=0.1, comparator=closest)
    bound, regret = debiased(run, noise_rate=0.1), Estimate.of(final_regrets(run))
    assert bound.holds
    assert set(bound.terms) == {"start", "variance"}
    assert regret.mean + 5 * regret.error < bound.value < theorem_b2(run, noise_rate=0.1).value
    assert failing(debiased(run, noise_rate=0.3)) == ["mean of the estimator", *NOISY]


NOT_FROM_P, NOT_CONVEX = "items drawn from p", "comparator in a convex set"
MEAN, SECOND = "mean of the estimator", "second moment of the estimator, over the bound's"
BROKEN = [  # changes of the rule, and the assumptions that then fail
    ({"policy": policies.softmax(temperature=0.9)}, [NOT_FROM_P]),
    ({"policy": policies.greedy()}, [NOT_FROM_P]),
    ({"policy": policies.softmax(k=3)}, [NOT_FROM_P]),
    ({"schedule": schedules.inverse_sqrt()}, ["constant step size"]),
    ({"projection": projections.sphere()}, [NOT_CONVEX]),
    ({"projection": projections.ball(radius=0.3)}, [NOT_CONVEX]),
    ({"estimator": estimators.clipped(floor=1e-6)}, [MEAN]),
    ({"estimator": estimators.debiased(noise_rate=0.2)}, [MEAN, SECOND]),
    ({"tau": 1.0}, ["the run starts at Theta_1"]),
]


@pytest.mark.parametrize(("changes", "names"), BROKEN)
def test_an_assumption_that_fails_is_named(near, changes, names):
    bound = theorem_5_1(near._replace(rule=near.rule._replace(**changes)))
    assert failing(bound) == names
    assert f"FAILS  {names[0]}" in describe(bound)


def test_other_propensities_and_two_labels_are_named(near):
    trace, stream = near.trace, near.stream
    halved = near._replace(trace=trace._replace(propensity=0.5 * trace.propensity))
    labels = jnp.concatenate([stream.labels, (stream.labels + 1) % 8], axis=1)
    two = near._replace(stream=stream._replace(labels=labels))
    for run, name in ((halved, NOT_FROM_P), (two, "one label a query")):
        assert failing(theorem_5_1(run)) == [name]
        assert f"FAILS  {name}" in describe(theorem_5_1(run))


def test_a_bound_says_what_it_is_made_of(near):
    text = describe(theorem_5_1(near))
    assert text.startswith("Theorem 5.1: regret <= ")
    assert "(start) + " in text
    assert "FAILS" not in text
    assert "void" not in text


def test_one_seed_without_its_axis_is_refused(near):
    stream = Stream(near.stream.queries, near.stream.labels, near.stream.order[0])
    with pytest.raises(ValueError, match=r"stream.order \(320,\) .* must both be \[S, T\]"):
        theorem_5_1(near._replace(stream=stream))


def test_a_learner_that_never_moves_has_no_bound(near):
    with pytest.raises(ValueError, match=r"eta must be > 0 for a regret bound, got 0\.0"):
        theorem_5_1(near._replace(rule=presets.frozen().structure))


def test_a_run_that_diverged_has_an_infinite_bound(near):
    lost = near._replace(trace=near.trace._replace(loss=near.trace.loss + 1e6))
    assert theorem_5_1(lost).value == np.inf
