"""Regret and bounds of runs against NumPy, and refusals where no bound applies."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.theory import duality
from jaxret.theory.regret import start_of
from tests.theory.conftest import losses_and_steps

DUAL = ["duality", "duality, whole ball"]
TAU, ETA = 0.2, 0.01
BALL = jr.orag(tau=TAU, eta=ETA, projection=jr.ball())

# One length, number of seeds and form, so that runs of one learner share a program.
simulate = partial(jr.simulate, exposures=3, seeds=4, form="scan")


@pytest.fixture(scope="module")
def six(small):
    return small(items=6, queries=40)


@pytest.fixture(scope="module")
def run(six):
    return simulate(BALL, six)


def loss(theta, task, tau):
    """Compute the loss of one Theta on every query in float64."""
    return losses_and_steps(theta, task.queries, task.labels, tau)[0]


def excess(theta, task, *, radius):
    """Bound the summed loss minus its minimum over a ball, ``<G, Theta> + R sum_i ||G_i||``."""
    _, c = losses_and_steps(theta, task.queries, task.labels, TAU)
    gradient = 3 * c.T @ task.queries / TAU
    return (gradient * theta).sum() + radius * np.linalg.norm(gradient, axis=1).sum()


def test_regret_is_the_loss_less_that_of_one_theta(run, six):
    got = jr.regret(run, against=six.theta)
    theirs = loss(six.theta, six, TAU)[run.order]
    want = np.cumsum(np.asarray(run.trace.loss, np.float64) - theirs, axis=1)
    np.testing.assert_allclose(got.curve, want, atol=1e-3)
    assert got.final.mean == pytest.approx(want[:, -1].mean(), abs=1e-3)
    assert repr(got) == f"regret {got.final} after 120 rounds"
    assert jr.regret(run).final.mean > got.final.mean  # Theta_1 is not the best in the ball


def test_the_comparator_follows_the_projection(run, six):
    inside = jr.regret(run).comparator
    assert inside.converged
    assert np.linalg.norm(inside.theta, axis=1).max() <= 1 + 1e-5
    assert 0 <= excess(inside.theta, six, radius=1.0) < 0.02
    for projection in (jr.sphere(), jr.projections.none()):
        other = replace(run, learner=jr.orag(tau=TAU, eta=ETA, projection=projection))
        found = jr.regret(other).comparator
        assert found.converged  # in float32 too
        assert 0 < found.iterations <= 20
        gradient = proximal_gradient(found.theta, six, TAU, ETA, times=3)
        assert np.abs(gradient).max() < 0.05 * np.abs(six.theta - found.theta).max() / ETA


def proximal_gradient(theta, task, tau, eta, *, times):
    """Compute the gradient of ``sum_t l_t + ||Theta - Theta_1||^2 / (2 eta)`` in NumPy."""
    theta, queries = np.asarray(theta, np.float64), task.queries.astype(np.float64)
    _, c = losses_and_steps(theta, queries, task.labels, tau)
    return times * c.T @ queries / tau + (theta - task.theta) / eta


def test_the_statements_of_a_run_with_clean_labels_hold(run):
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


def test_label_noise_selects_the_statements(six):
    B2 = ["Theorem B.2", "Corollary B.3"]
    for rate, names in ((0.1, [*B2, "debiased", *DUAL]), (0.5, [*B2, *DUAL])):
        noisy = simulate(BALL, six, environment=jr.label_noise(rate))
        by_tool = replace(noisy, environment=jr.label_noise(np.full(6, rate)))
        for run in (noisy, by_tool) if rate < 0.5 else (noisy,):
            holds = {one.name: one.holds for one in jr.bounds(run)}
            assert holds == {name: name != "debiased" for name in names}
    debiased = jr.debiased(noise_rate=0.1, tau=TAU, eta=ETA, projection=jr.ball())
    statements = jr.bounds(simulate(debiased, six, environment=jr.label_noise(0.1)))
    assert [one.holds for one in statements] == [False, False, True, True, True]


@pytest.mark.parametrize("liar", [None, 2])
def test_wrong_verdicts_must_be_equally_frequent_for_all_tools(six, liar):
    truth = np.zeros((len(six), 6))
    truth[np.arange(len(six)), six.labels[:, 0]] = 1
    verdicts = np.where(np.random.default_rng(5).random(truth.shape) < 0.1, 1 - truth, truth)
    if liar is not None:
        verdicts = truth.copy()
        verdicts[:, liar] = 1 - truth[:, liar]
    # Uses one exposure, since a second one would repeat the errors of the first.
    run = simulate(BALL, six, exposures=1, environment=jr.judged(verdicts))
    statement = jr.bounds(run)[0]
    assert statement.name == "Theorem B.2"
    assert statement.holds == (liar is None)
    if liar is not None:
        assert "rewards of tool" in repr(statement)


def test_only_duality_holds_for_a_rule_without_bandit_estimator(six):
    for one in jr.bounds(simulate(jr.greedy(tau=TAU, eta=ETA), six)):
        of_any = one.name in DUAL
        assert one.holds == of_any
        assert ("void: an assumption fails" in repr(one)) != of_any
        assert ("FAILS" in repr(one)) != of_any
        assert not of_any or one.measured <= one.value


def test_only_duality_applies_to_a_query_map(six):
    statements = jr.bounds(simulate(jr.mapped(tau=TAU, eta=ETA), six))
    assert [one.name for one in statements] == DUAL
    for one in statements:
        assert one.holds
        assert one.measured <= one.value


def test_a_comparator_that_did_not_converge_voids_a_statement(run):
    regret = jr.regret(run)
    doubtful = jr.Regret(regret.curve, regret.comparator._replace(converged=np.asarray(False)))
    statement = jr.bounds(run, doubtful.comparator)[0]
    assert not statement.holds
    assert "did not converge" in repr(statement)
    assert "did not converge" in repr(doubtful)


def test_theta_1_is_projected_first(run, six):
    long = replace(run, task=jr.Task.from_arrays(2 * six.theta, six.queries, six.labels))
    np.testing.assert_allclose(start_of(long).theta, six.theta, rtol=1e-6)
    assert jr.regret(long).final.mean == pytest.approx(jr.regret(run).final.mean, rel=1e-3)


def test_tools_that_are_absent_throughout_are_left_out(small):
    available = np.arange(9) % 3 > 0
    task = small(items=9, queries=90, available=available)
    rows = np.flatnonzero(available)
    answerable = available[task.labels[:, 0]]
    seen = task.select(answerable & (answerable.cumsum() <= 40))  # as many queries as `six`
    labels = np.searchsorted(rows, seen.labels[:, 0])
    bare = jr.Task.from_arrays(task.theta[rows], seen.queries, labels)
    runs = [simulate(BALL, one) for one in (seen, bare)]
    np.testing.assert_array_equal(runs[0].trace.item, rows[runs[1].trace.item])
    for one, other in zip(*map(jr.bounds, runs), strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-3)
        assert one.measured == pytest.approx(other.measured, rel=1e-2)
        assert one.holds
    against = jr.regret(runs[0], against=seen.theta).final.mean
    assert against == pytest.approx(jr.regret(runs[1], against=bare.theta).final.mean, rel=1e-3)


def sign_descent(tau, eta):
    """Make a learner that is not rank one: rows follow the signs of the gradient."""
    plain = jr.orag(tau=tau, eta=eta, projection=jr.projections.none())

    def update(state, query, choice, feedback):
        moved = plain.update(state, query, choice, feedback)
        step = jnp.sign(moved.theta - state.theta)
        return moved._replace(theta=state.theta + eta * step)

    return plain._replace(name="signs", update=update)


@pytest.fixture(scope="module")
def own(six):
    return simulate(sign_descent(TAU, 0.003), six)


def test_a_custom_learner_has_regret_and_bounds_at_a_given_temperature(six, own):
    run, radius = own, np.linalg.norm(six.theta, axis=1).max()
    ours = np.asarray(run.trace.loss, np.float64).sum(axis=1)
    for tau in (TAU, 0.5):
        found = jr.regret(run, six.theta, tau=tau).final.values
        theirs = loss(six.theta, six, tau)[run.order].sum(axis=1)
        np.testing.assert_allclose(found, ours - theirs, atol=1e-3)
    best = jr.regret(run, tau=TAU)
    assert best.comparator.converged
    assert np.linalg.norm(best.comparator.theta, axis=1).max() <= radius + 1e-5
    assert 0 <= excess(best.comparator.theta, six, radius=radius) < 0.02
    tau, u = 0.5, 3 * six.theta  # outside of the ball
    found, statements = duality.dual(run, tau), jr.bounds(run, u, tau=tau)
    assert [one.name for one in statements] == DUAL
    assert statements[0].measured == pytest.approx(jr.regret(run, u, tau=tau).final.mean)
    assert statements[0].value == pytest.approx(duality.against_one(found, u).value, rel=1e-5)
    ball = duality.against_ball(found, radius, radius)
    assert statements[1].value == pytest.approx(ball.value, rel=1e-5)
    for one in statements:
        assert one.holds
        assert one.measured <= one.value


def test_tau_is_required_without_a_rule_and_refused_with_one(run, own):
    for function in (jr.regret, jr.bounds):
        with pytest.raises(ValueError, match=r"signs is not a rank-one rule: give .* tau="):
            function(own)
        with pytest.raises(ValueError, match="tau must be > 0, got 0"):
            function(own, tau=0)
        with pytest.raises(ValueError, match=r"orag is rank one and has tau = 0\.2: give no other"):
            function(run, tau=0.1)


class OtherLabels(NamedTuple):
    def labels_at(self, t, query, labels):
        return labels + t % 2


def test_runs_without_statements_are_refused(run, six):
    bare = jr.greedy()._replace(name="bare", logits=None)
    moving = jr.Environment(arrives=np.array([0, 0, 0, 0, 0, 9]))
    drifting = jr.Environment(effects=(OtherLabels(),))
    cases = {
        "bare has no softmax: so it has no loss, regret or bounds": {"learner": bare},
        "greedy_replayed is not a rank-one rule: give .* tau=": {"learner": jr.greedy_replayed()},
        "paper_adamw is not a rank-one rule: give .* tau=": {"learner": jr.paper_adamw()},
        "tools changed while orag ran": {"environment": moving},
        "queries, labels or tools changed while orag ran": {"environment": drifting},
        "frozen has eta = 0": {"learner": jr.frozen()},
    }
    for message, changes in cases.items():
        for function in (jr.bounds, jr.regret):
            with pytest.raises(ValueError, match=message):
                function(replace(run, **changes))
    with pytest.raises(ValueError, match=r"against must be rows \[6, 8\].*got \[5, 8\]"):
        jr.regret(run, against=six.theta[:5])
