"""Regret and bounds of a run: by hand where that is short, in a sentence where none applies."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import jaxret as jr
from jaxret.theory import comparators, duality

DUAL = ["duality", "duality, whole ball"]


@pytest.fixture(scope="module")
def six(small):
    return small(items=6, queries=40)


@pytest.fixture(scope="module")
def run(six):
    learner = jr.orag(tau=0.2, eta=0.01, projection=jr.ball())
    return jr.simulate(learner, six, exposures=4, seeds=4)


def loss(theta, task, tau):
    """Of every query, in float64."""
    z = task.queries.astype(np.float64) @ np.asarray(theta, np.float64).T / tau
    return logsumexp(z, axis=1) - z[np.arange(len(task)), task.labels[:, 0]]


def test_regret_is_the_loss_less_that_of_one_theta(run, six):
    got = jr.regret(run, against=six.theta)
    theirs = loss(six.theta, six, 0.2)[run.order]
    want = np.cumsum(np.asarray(run.trace.loss, np.float64) - theirs, axis=1)
    np.testing.assert_allclose(got.curve, want, atol=1e-3)
    assert got.final.mean == pytest.approx(want[:, -1].mean(), abs=1e-3)
    assert repr(got) == f"regret {got.final} after 160 rounds"
    assert jr.regret(run).final.mean > got.final.mean  # Theta_1 is not the best in the ball


def test_the_comparator_follows_the_projection(run, six):
    inside = jr.regret(run).comparator
    assert inside.converged
    assert np.linalg.norm(inside.theta, axis=1).max() <= 1 + 1e-5
    best = comparators.in_ball(
        six.queries, six.labels, tau=0.2, radius=1.0, theta_0=six.theta, counts=np.full(40, 4.0)
    )
    np.testing.assert_allclose(inside.theta, best.theta, atol=1e-4)
    for projection in (jr.sphere(), jr.projections.none()):
        eta = 0.01
        other = jr.simulate(jr.orag(tau=0.2, eta=eta, projection=projection), six, exposures=4)
        found = jr.regret(other).comparator
        gradient = proximal_gradient(found.theta, six, 0.2, eta, times=4)
        assert np.abs(gradient).max() < 0.05 * np.abs(six.theta - found.theta).max() / eta


def proximal_gradient(theta, task, tau, eta, *, times):
    """Of ``sum_t l_t + ||Theta - Theta_1||^2 / (2 eta)``, written out."""
    theta, queries = np.asarray(theta, np.float64), task.queries.astype(np.float64)
    z = queries @ theta.T / tau
    c = np.exp(z - logsumexp(z, axis=1, keepdims=True))
    c[np.arange(len(task)), task.labels[:, 0]] -= 1
    return times * c.T @ queries / tau + (theta - task.theta) / eta


def test_clean_labels_have_two_statements_that_hold(run):
    statements = jr.bounds(run)
    of_regret = ["Theorem 5.1", "Corollary 5.2", "Theorem 5.1, projection counted"]
    others = ["Lemma 3.1, accumulated", "duality", "duality, whole ball"]
    assert [one.name for one in statements] == [*of_regret, *others]
    for one in statements:
        assert one.holds
        assert one.measured <= one.value
        if one.quantity == "regret":
            assert one.measured == pytest.approx(jr.regret(run).final.mean)
            assert f"measured {jr.regret(run).final}" in repr(one)
    assert "measured" in repr(statements[3])


@pytest.mark.parametrize(
    ("rate", "given", "names"),
    [
        (0.1, np.full(6, 0.1), ["Theorem B.2", "Corollary B.3", "debiased", *DUAL]),  # by tool
        (0.5, 0.5, ["Theorem B.2", "Corollary B.3", *DUAL]),
    ],
)
def test_noisy_labels_have_others(six, rate, given, names):
    learner = jr.orag(tau=0.2, eta=0.01, projection=jr.ball())
    noisy = jr.simulate(learner, six, exposures=4, seeds=3, environment=jr.label_noise(given))
    statements = jr.bounds(noisy)
    assert [one.name for one in statements] == names
    assert [one.holds for one in statements if one.name != "debiased"] == [True] * 4
    if rate < 0.5:
        mended = jr.debiased(noise_rate=rate, tau=0.2, eta=0.01, projection=jr.ball())
        run = jr.simulate(mended, six, exposures=4, seeds=3, environment=jr.label_noise(rate))
        assert [one.holds for one in jr.bounds(run)] == [False, False, True, True, True]
        assert not statements[2].holds


@pytest.mark.parametrize("liar", [None, 2])
def test_a_judge_is_held_against_the_noise_that_the_theory_knows(six, liar):
    truth = np.zeros((len(six), 6))
    truth[np.arange(len(six)), six.labels[:, 0]] = 1
    verdicts = np.where(np.random.default_rng(5).random(truth.shape) < 0.1, 1 - truth, truth)
    if liar is not None:
        verdicts = truth.copy()
        verdicts[:, liar] = 1 - truth[:, liar]
    learner = jr.orag(tau=0.2, eta=0.01, projection=jr.ball())
    times = 1 if liar is None else 4  # more rounds a tool; honest noise would come back the same
    run = jr.simulate(learner, six, exposures=times, seeds=3, environment=jr.judged(verdicts))
    statements = jr.bounds(run)
    assert statements[0].name == "Theorem B.2"
    assert statements[0].holds == (liar is None)
    if liar is not None:
        assert "rewards of tool" in repr(statements[0])


def test_a_rule_that_the_theorems_do_not_speak_of_is_void(six):
    run = jr.simulate(jr.greedy(tau=0.2), six, exposures=2, seeds=2)
    for one in jr.bounds(run):
        of_any = one.name in DUAL
        assert one.holds == of_any
        assert ("void: an assumption fails" in repr(one)) != of_any
        assert ("FAILS" in repr(one)) != of_any
        assert not of_any or one.measured <= one.value


def test_a_query_map_has_the_bounds_of_any_rule(six):
    run = jr.simulate(jr.mapped(tau=0.2), six, exposures=2, seeds=2)
    for one in (statements := jr.bounds(run)):
        assert one.holds
        assert one.measured <= one.value
    assert [one.name for one in statements] == DUAL


def test_a_comparator_that_did_not_converge_voids_a_statement(run):
    regret = jr.regret(run)
    doubtful = jr.Regret(regret.curve, regret.comparator._replace(converged=np.asarray(False)))
    statement = jr.bounds(run, doubtful.comparator)[0]
    assert not statement.holds
    assert "did not converge" in repr(statement)
    assert "did not converge" in repr(doubtful)


def test_rows_begin_where_the_projection_puts_them(six):
    long = jr.Task.from_arrays(2 * six.theta, six.queries, six.labels)
    learner = jr.orag(tau=0.2, eta=0.01, projection=jr.ball())
    statements = jr.bounds(jr.simulate(learner, long, exposures=4, seeds=4))
    assert all(one.holds for one in statements)


def test_tools_that_are_absent_throughout_are_left_out(small):
    there = np.arange(9) % 3 > 0
    task = small(items=9, available=there)
    rows = np.flatnonzero(there)
    seen = task.select(there[task.labels[:, 0]])
    bare = jr.Task.from_arrays(
        task.theta[rows], seen.queries, np.searchsorted(rows, seen.labels[:, 0])
    )
    learner = jr.orag(tau=0.2, eta=0.01, projection=jr.ball())
    runs = [jr.simulate(learner, one, exposures=3, seeds=2) for one in (seen, bare)]
    np.testing.assert_array_equal(runs[0].trace.item, rows[runs[1].trace.item])
    for one, other in zip(*map(jr.bounds, runs), strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-3)
        assert one.measured == pytest.approx(other.measured, rel=1e-2)
        assert one.holds
    against = jr.regret(runs[0], against=seen.theta).final.mean
    assert against == pytest.approx(jr.regret(runs[1], against=bare.theta).final.mean, rel=1e-3)


def sign_descent(tau, eta):
    """A rule that is not rank one: rows take steps of one size along the gradient's signs."""
    plain = jr.orag(tau=tau, eta=eta, projection=jr.projections.none())

    def update(state, query, choice, feedback):
        moved = plain.update(state, query, choice, feedback)
        step = jnp.sign(moved.theta - state.theta)
        return moved._replace(theta=state.theta + eta * step)

    return jr.Learner(
        name="signs",
        init=plain.init,
        act=plain.act,
        update=update,
        logits=plain.logits,
        scores=plain.scores,
    )


def test_a_rule_of_ones_own_has_regret_and_bounds_at_a_temperature(six):
    run = jr.simulate(sign_descent(0.2, 0.003), six, exposures=4, seeds=3)
    ours = np.asarray(run.trace.loss, np.float64).sum(axis=1)
    for tau in (0.2, 0.5):
        found = jr.regret(run, six.theta, tau=tau).final.values
        theirs = loss(six.theta, six, tau)[run.order].sum(axis=1)
        np.testing.assert_allclose(found, ours - theirs, atol=1e-3)
    best = jr.regret(run, tau=tau)
    assert best.comparator.converged
    radius = np.linalg.norm(six.theta, axis=1).max()
    assert np.linalg.norm(best.comparator.theta, axis=1).max() <= radius + 1e-5
    options = {"tau": tau, "radius": radius, "theta_0": six.theta, "counts": np.full(40, 4.0)}
    expected = comparators.in_ball(six.queries, six.labels, **options)
    assert best.comparator.loss == pytest.approx(float(expected.loss), rel=1e-3)
    found = duality.dual(run, tau)
    for u in (best.comparator.theta, 3 * six.theta):  # the second is no longer in the ball
        statements = jr.bounds(run, u, tau=tau)
        assert [one.name for one in statements] == DUAL
        assert statements[0].measured == pytest.approx(jr.regret(run, u, tau=tau).final.mean)
        assert statements[0].value == pytest.approx(duality.against_one(found, u).value, rel=1e-5)
        ball = duality.against_ball(found, radius, radius)
        assert statements[1].value == pytest.approx(ball.value, rel=1e-5)
        for one in statements:
            assert one.holds
            assert one.measured <= one.value


def test_a_temperature_is_asked_for_where_no_rule_has_one_and_only_there(run, six):
    own = jr.simulate(sign_descent(0.2, 0.003), six)
    for function in (jr.regret, jr.bounds):
        with pytest.raises(ValueError, match=r"signs is no rank-one rule: give .* tau="):
            function(own)
        with pytest.raises(ValueError, match="tau must be > 0, got 0"):
            function(own, tau=0)
        with pytest.raises(ValueError, match=r"orag is rank one and has tau = 0\.2: give no other"):
            function(run, tau=0.1)


class OtherLabels(NamedTuple):
    def labels_at(self, t, query, labels):
        return labels + t % 2


def test_where_no_statement_applies_a_sentence_says_why(run, six):
    def of(learner, **options):
        return jr.simulate(learner, six, **options)

    bare = jr.greedy()._replace(name="bare", logits=None)
    moving = jr.Environment(arrives=np.array([0, 0, 0, 0, 0, 9]))
    drifting = jr.Environment(effects=(OtherLabels(),))
    cases = {
        "bare has no softmax: so it has no loss, regret or bounds": of(bare),
        "greedy_replayed is no rank-one rule: give .* tau=": of(jr.greedy_replayed()),
        "paper_adamw is no rank-one rule: give .* tau=": of(jr.paper_adamw()),
        "tools changed while greedy ran": of(jr.greedy(), environment=moving),
        "queries, labels or tools changed while orag ran": replace(run, environment=drifting),
        "frozen has eta = 0": of(jr.frozen()),
    }
    for message, without in cases.items():
        for function in (jr.bounds, jr.regret):
            with pytest.raises(ValueError, match=message):
                function(without)
    assert np.isnan(
        cases["bare has no softmax: so it has no loss, regret or bounds"].trace.loss
    ).all()
    still = jr.regret(of(jr.frozen(tau=0.2)), against=six.theta)
    np.testing.assert_allclose(still.curve, 0, atol=1e-3)
    with pytest.raises(ValueError, match=r"against must be rows \[6, 8\].*got \[5, 8\]"):
        jr.regret(run, against=six.theta[:5])
