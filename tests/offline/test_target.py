"""Target policies: the learner's probabilities in float64, and refusals where these are unknown."""

import numpy as np
import pytest

import jaxret as jr
from jaxret.encoders.lexical import sparse_prior
from jaxret.offline.snapshots import target
from tests.offline.conftest import make_log
from tests.problems import make_task

TASK = make_task(queries=300)


def log_of(task=TASK, **more):
    n = len(task)
    return make_log(np.zeros(n, int), np.zeros(n), np.ones(n), query=task.queries, **more)


def softmax(task, tau):
    z = np.float64(task.queries) @ np.float64(task.theta).T / tau
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 3])
def test_probabilities_and_scores_are_those_of_the_state(k):
    log = log_of(theta=TASK.theta)
    found = target(log, jr.orag(tau=0.2, k=k))
    every, part = found.probabilities(slice(0, 300)), found.probabilities(slice(250, 259))
    np.testing.assert_allclose(every, softmax(TASK, 0.2), rtol=2e-5)
    np.testing.assert_allclose(every.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(part, every[250:259], rtol=1e-6)
    expected = np.float64(TASK.queries) @ np.float64(TASK.theta).T
    np.testing.assert_allclose(found.scores(slice(0, 300)), expected, atol=1e-6)


def test_a_snapshot_serves_from_its_state_and_absent_tools_are_not_shown():
    learner = jr.orag(tau=0.2)
    moved = TASK.with_theta(np.roll(TASK.theta, 1, axis=0))
    found = target(log_of(theta=TASK.theta), jr.Snapshot(learner, learner.init(moved.theta)))
    np.testing.assert_allclose(found.probabilities(slice(0, 300)), softmax(moved, 0.2), rtol=2e-5)
    here = np.arange(12) % 3 > 0
    found = target(log_of(theta=TASK.theta, available=here), learner)
    assert (found.probabilities(slice(0, 9))[:, ~here] == 0).all()


def test_the_prior_of_each_round_is_read():
    scores = np.random.default_rng(0).random((300, 12))
    log = log_of(theta=TASK.theta, prior=sparse_prior(scores))
    found = target(log, jr.with_lexical(jr.orag(tau=0.2), 0.4))
    by_rows = np.float64(TASK.queries) @ np.float64(TASK.theta).T
    z = np.exp((0.6 * by_rows + 0.4 * scores) / 0.2)
    p = z / z.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.probabilities(slice(0, 300)), p, rtol=2e-5)
    np.testing.assert_allclose(found.probabilities(slice(250, 259)), p[250:259], rtol=2e-5)
    expected = by_rows + 0.4 / 0.6 * scores
    np.testing.assert_allclose(found.scores(slice(0, 300)), expected, atol=1e-5)


def test_policies_without_probabilities_or_rows_are_refused():
    log = log_of(theta=TASK.theta)
    rows = np.full((300, 12), 1 / 12)
    np.testing.assert_array_equal(target(log, rows).probabilities(slice(3, 5)), rows[3:5])
    assert target(log, rows).scores is None
    with pytest.raises(ValueError, match="'greedy' does not give the probability of each tool"):
        target(log, jr.greedy(k=2))
    with pytest.raises(ValueError, match="'orag' has no rows to begin from: read the log with its"):
        target(log_of(), jr.orag())
    prior = log_of(theta=TASK.theta, prior=sparse_prior(np.ones((300, 12))))
    with pytest.raises(ValueError, match="the log has up to 12 prior scores per query, and"):
        target(prior, jr.with_lexical(jr.orag(tau=0.2), width=5))
    with pytest.raises(ValueError, match=r"probabilities' shape must be \[300, I\], got \(9, 12\)"):
        target(log, rows[:9])
    for wrong in (-1.0, 0.5, np.nan):
        changed = rows.copy()
        changed[7, 2] = wrong
        with pytest.raises(ValueError, match="of round 7 are negative or do not sum to 1"):
            target(log, changed)
