"""Bounds of SquareCB: the inverse-gap inequality by enumeration, and runs inside its class."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.learners.bandits.inverse_gap import inverse_gap
from jaxret.theory import square_loss
from tests.theory.conftest import stated


def test_inverse_gaps_pay_for_regret_with_the_squared_error():
    rng = np.random.default_rng(0)
    tightest = np.inf
    choose = jax.jit(jax.vmap(inverse_gap, in_axes=(0, None, None)))
    for items in (2, 5, 30):
        for over in (0.1, 1.0, 20.0):
            gamma = over * items
            f, true = np.moveaxis(rng.beta(0.4, 0.4, size=(2000, 2, items)), 1, 0)
            p = np.asarray(choose(f, np.ones(items, bool), over))
            regret = np.sum(p * (true.max(axis=1, keepdims=True) - true), axis=1)
            paid = 2 * items / gamma + gamma / 4 * np.sum(p * (f - true) ** 2, axis=1)
            assert (regret <= paid + 1e-5).all()
            tightest = min(tightest, np.min(paid / np.maximum(regret, 1e-9)))
    assert tightest < 2


def orthogonal(items=3, queries=30):
    """Make a task where right tools have cosine 1 and others 0, so f* is linear in the ball."""
    theta = np.eye(items)
    labels = np.arange(queries) % items
    return jr.Task.from_arrays(theta, theta[labels], labels, name="orthogonal")


def crossed(items=3, queries=30):
    """Make a task where all queries look the same to the rows but have different tools."""
    task = orthogonal(items, queries)
    return jr.Task.from_arrays(task.theta, np.full_like(task.queries, items**-0.5), task.labels)


@pytest.mark.parametrize("make", [orthogonal, crossed])
def test_the_bound_under_realizability_holds_only_for_a_realizable_task(make):
    """In the crossed task, f* is outside the class: its bound fails, though no test rejects it."""
    learner = jr.squarecb(gamma=8.0, eta=0.2, start="zero")
    run = jr.simulate(learner, make(), exposures=40, seeds=6)
    found = stated(run)
    assert list(found) == ["SquareCB, if realizable", "SquareCB, from its regression"]
    wrong = (1 - np.asarray(run.trace.success, np.float64)).sum(axis=1)
    for one in found.values():
        np.testing.assert_allclose(one.estimate.values, wrong)
        assert one.quantity == "wrong tools"
        assert one.holds
    if_realizable, from_regression = found.values()
    assert from_regression.measured < from_regression.value
    realizable = if_realizable.measured < if_realizable.value < run.order.shape[1]
    assert realizable == (make is orthogonal)


def test_a_replay_predicts_what_the_rule_predicted():
    learner = jr.squarecb(gamma=5.0, eta=0.3)
    run = jr.simulate(learner, orthogonal(), exposures=4, seeds=2)
    found = square_loss.history(run)
    for seed in range(2):
        theta, b = np.eye(3), 0.0
        for t, n in enumerate(run.order[seed]):
            q, item = run.task.queries[n], run.trace.item[seed, t]
            means = theta @ q + b
            assert found.linear[seed, t] == pytest.approx(means[item], abs=1e-4)
            f = np.clip(means, 0, 1)
            chance = 1 / (3 + 15 * (f.max() - f))
            chance[f.argmax()] = 0
            chance[f.argmax()] = 1 - chance.sum()
            assert run.trace.propensity[seed, t] == pytest.approx(chance[item], rel=1e-3)
            error = means[item] - run.trace.reward[seed, t]
            theta[item] -= 0.3 * error * q
            theta[item] /= max(1, np.linalg.norm(theta[item]))
            b -= 0.3 * error
    assert found.off < 1e-3


def test_realizability_is_refuted_by_what_learning_cannot_explain_and_by_nothing_less():
    rng = np.random.default_rng(0)
    fine = rng.uniform(size=(2, 4000))
    bits = (rng.random(fine.shape) < fine).astype(float)
    descent = np.full(2, 20.0)
    assert square_loss.realizability(square_loss.History(fine, bits, 0.0), descent) == 1.0
    off = square_loss.History(0.5 * fine, bits, 0.0)
    assert square_loss.realizability(off, descent) < 1e-3
    assert square_loss.realizability(off, np.full(2, 1e5)) == 1.0


def test_realizability_is_not_rejected_while_the_learner_is_still_learning():
    """f* is in the class: the sharp test rejects, and the one that allows for learning must not."""
    learner = jr.squarecb(gamma=2.0, eta=0.02, start="zero")
    run = jr.simulate(learner, orthogonal(), exposures=40, seeds=6)
    assert min(one.p for one in square_loss.deciles(run)) < 1e-3
    found = stated(run)["SquareCB, if realizable"]
    assert [a.measured for a in found.bound.assumptions if "realizable" in a.name] == [1.0]


def test_noise_voids_both_and_other_learners_are_refused():
    learner = jr.squarecb(gamma=2.0, eta=0.2, start="zero")
    run = jr.simulate(learner, orthogonal(), exposures=40, seeds=6)
    reward = np.where(np.random.default_rng(0).random(run.order.shape) < 0.2, 0, run.trace.reward)
    noisy = replace(run, trace=run.trace._replace(reward=reward.astype(np.float32)))
    for one in jr.bounds(noisy):
        assert not one.holds
        assert "FAILS  bits say what is right" in repr(one)
    with pytest.raises(ValueError, match="'frozen' was not made by the preset squarecb"):
        square_loss.history(replace(noisy, learner=jr.frozen()))


def test_the_p_of_realizability_is_corrected_for_deciles_seeds_and_rounds():
    """By hand for one decile: sqrt(A + v) + sqrt(v) = |sum y - g| / sqrt(n), p = 3 e^(-2 v).

    The number of the T rounds that fall into a decile is not known beforehand, so p is multiplied
    by T.
    """
    rounds, descent = 500, np.array([4.0, 9.0])
    linear = np.full((2, rounds), 0.25)
    bits = (np.arange(rounds) < [[325], [160]]).astype(float)
    bits = np.stack([np.random.default_rng(s).permutation(row) for s, row in enumerate(bits)])
    found = square_loss.History(linear, bits, 0.0)
    by_seed = []
    for seed in range(2):
        tested = bits[seed, 50:] - 0.25  # the first tenth defines the deciles
        gap = abs(tested.sum()) / np.sqrt(len(tested))
        assert (gap**2 > descent[seed]) == (seed == 0)
        v = ((gap**2 - descent[seed]) / (2 * gap)) ** 2
        by_seed.append(3 * np.exp(-2 * v))
    expected = 2 * rounds * by_seed[0]  # two tests; the second is not exceeded
    assert 1e-12 < expected < 0.5
    assert square_loss.realizability(found, descent) == pytest.approx(expected, rel=1e-9)
