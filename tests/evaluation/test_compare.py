"""Comparison of runs: pairing, coverage of intervals, and validity of p-values."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import jaxret as jr
from jaxret.evaluation import compare
from jaxret.retrieval.dense import inner_product
from tests.problems import unit

# One number of seeds, length and form, so that the runs of each learner share a program.
simulate = partial(jr.simulate, seeds=4, form="scan")


@pytest.fixture(scope="module")
def runs():
    """Return runs of one rule at three steps on one stream, and a test task with other queries."""
    rng = np.random.default_rng(0)
    labels = rng.integers(12, size=150)
    usage = unit(rng.normal(size=(12, 8)))
    theta = unit(usage + 0.7 * rng.normal(size=usage.shape))
    queries = unit(usage[labels] + 0.3 * rng.normal(size=(150, 8)))
    task = jr.Task.from_arrays(theta, queries, labels, name="twelve")
    train, test = task.split((0.7, 0.3), seed=0)
    steps = {"frozen": 0.0, "greedy": 0.05, "slow": 0.01}
    learners = [jr.greedy(tau=0.1, eta=eta)._replace(name=name) for name, eta in steps.items()]
    return [simulate(one, train, exposures=3) for one in learners], test


def test_the_difference_is_that_of_the_means_and_turns_its_sign(runs):
    (frozen, greedy, _), test = runs
    found, turned = jr.compare(greedy, frozen), jr.compare(frozen, greedy)
    np.testing.assert_allclose(found.difference, greedy.accuracy.mean - frozen.accuracy.mean)
    assert found.low < found.difference < found.high
    np.testing.assert_allclose(found.difference, -turned.difference)
    np.testing.assert_allclose([found.low, found.high], [-turned.high, -turned.low])
    assert found.p == turned.p
    assert str(found).startswith("greedy - frozen: accuracy +")
    ranked = jr.compare(greedy, frozen, "ndcg@10", on=test)
    means = [jr.evaluate(run, test)["ndcg@10"].mean for run in (greedy, frozen)]
    np.testing.assert_allclose(ranked.difference, means[0] - means[1], rtol=1e-5)
    same = jr.compare(greedy, greedy)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_success_is_counted_by_query_where_streams_differ_in_length():
    task = jr.Task.from_arrays(np.eye(4), np.eye(4), range(4))
    order = np.array([[2, 0, 2, 0, -1, -1], [1, 2, 3, 3, 2, 1]])
    success = np.where(order < 0, np.nan, [[1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 1, 0]])
    run = SimpleNamespace(task=task, order=order, trace=SimpleNamespace(success=success))
    found = compare.success_by_query(run)
    np.testing.assert_array_equal(found, [[0, np.nan, 0.5, np.nan], [np.nan, 0.5, 1, 0.5]])


def test_runs_on_parts_of_several_lengths_are_compared(runs):
    task = runs[0][0].task
    part = np.arange(len(task)) < np.array([[60], [50], [60], [50]])
    learners = jr.greedy(eta=0.0), jr.greedy(eta=0.03)
    two = [simulate(one, task, part=part, exposures=5) for one in learners]
    found = jr.compare(two[1], two[0])
    whole = [np.nansum(run.trace.success) for run in two]
    np.testing.assert_allclose(found.difference, (whole[1] - whole[0]) / (5 * 220))


def test_the_interval_is_that_of_a_normal_mean_where_queries_are_independent():
    """With one seed and one query per question, this is the bootstrap of a mean."""
    values = np.random.default_rng(1).normal(0.1, 1.0, (1, 400))
    drawn = compare._resampled(values, np.arange(400), 4000, 0)
    np.testing.assert_allclose(drawn.mean(), values.mean(), atol=0.005)
    np.testing.assert_allclose(drawn.std(), values.std() / 20, rtol=0.05)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_an_interval_is_as_wide_as_its_confidence_says(confidence):
    """Expect a half-width of z standard errors, so 90 % (1.64) and 95 % (1.96) differ."""
    values = np.random.default_rng(4).normal(0.1, 1.0, (1, 900))
    given = {} if confidence == 0.95 else {"confidence": confidence}  # 0.95 is the default
    found = compare.compare_paired(
        values, np.arange(900), name="a", other="b", resamples=8_000, seed=1, **given
    )
    assert found.confidence == confidence
    z = stats.norm.ppf((1 + confidence) / 2)
    half = (found.high - found.low) / 2 / (values.std() / 30)
    assert half == pytest.approx(z, rel=0.06)
    np.testing.assert_allclose((found.low + found.high) / 2, values.mean(), atol=0.01)


def test_queries_of_one_question_stay_together_and_seeds_are_resampled_too():
    """Twenty copies of each of twenty values count as twenty values, not as four hundred."""
    values = np.repeat(np.random.default_rng(2).normal(size=20), 20)[None]
    groups = np.repeat(np.arange(20), 20)
    together = compare._resampled(values, groups, 2000, 0).std()
    apart = compare._resampled(values, np.arange(400), 2000, 0).std()
    np.testing.assert_allclose(together / apart, np.sqrt(20), rtol=0.1)
    by_seed = np.repeat(np.arange(4.0)[:, None], 50, axis=1)  # equal for all queries
    drawn = compare._resampled(by_seed, np.arange(50), 4000, 0)
    np.testing.assert_allclose(drawn.std(), np.std([0, 1, 2, 3]) / 2, rtol=0.05)


def test_without_a_difference_small_p_values_are_rare():
    rng = np.random.default_rng(3)
    small = 0
    for draw in range(200):
        values = rng.normal(size=(1, 60))
        drawn = compare._resampled(values, np.arange(60), 100, draw)
        small += 1 + min((drawn <= 0).sum(), (drawn >= 0).sum()) <= 3  # p <= 6 / 101
    assert stats.binomtest(small, 200, 6 / 101).pvalue > 1e-3


def test_p_values_of_several_comparisons_are_corrected(runs):
    (frozen, greedy, slow), _ = runs
    single = [jr.compare(run, frozen) for run in (greedy, slow)]
    found = jr.compare_all([frozen, greedy, slow], against=frozen)
    assert [one.name for one in found] == ["greedy", "slow"]
    least = min(one.p for one in single)
    assert min(one.p for one in found) == pytest.approx(min(1.0, 2 * least))
    assert len(str(found).splitlines()) == 2


def test_retrievers_rows_and_lists_are_compared_with_runs_and_with_each_other(runs):
    (frozen, greedy, _), test = runs
    retriever, rows = inner_product("dense", test.theta), test.theta
    lists = np.argsort(-test.queries @ test.theta.T, axis=1)
    compare_on = partial(jr.compare, metric="ndcg@10", on=test, resamples=100)
    same = compare_on(greedy, frozen)  # these are frozen's rows
    for ranked, name in ((retriever, "dense"), (rows, "rows"), (lists, "ranking")):
        found = compare_on(greedy, ranked)
        assert (found.name, found.other) == ("greedy", name)
        np.testing.assert_allclose(found.difference, same.difference, atol=1e-6)
        back = compare_on(ranked, greedy)
        np.testing.assert_allclose(back.difference, -found.difference, atol=1e-6)
        assert compare_on(ranked, retriever).difference == 0
    embeddings = greedy.embeddings()
    found = jr.compare_all([greedy, embeddings], against=retriever, on=test, resamples=100)
    assert [one.name for one in found] == ["greedy", "greedy"]


def test_unpaired_runs_and_bad_arguments_are_refused(runs):
    """Among others, other seeds with the same order, and another order with the same seeds."""
    (frozen, greedy, _), test = runs
    others = [
        replace(frozen, seeds=(4, 5, 6, 7)),
        replace(frozen, order=frozen.order[:, ::-1]),
        replace(frozen, order=frozen.order[::-1]),
        replace(frozen, order=frozen.order[:, :100]),
        simulate(frozen.learner, frozen.task, exposures=3, seeds=(4, 5, 6, 7)),
    ]
    for other in others:
        for options in ({}, {"metric": "ndcg@10", "on": test}):
            with pytest.raises(ValueError, match=r"other queries or another order \(seeds \(0, 1,"):
                jr.compare(greedy, other, **options)
    with pytest.raises(ValueError, match="ran on different tasks"):
        jr.compare(frozen, replace(frozen, task=test))
    with pytest.raises(ValueError, match="needs the queries to rank"):
        jr.compare(frozen, greedy, "ndcg@10")
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\), got 95"):
        jr.compare(frozen, greedy, confidence=95)
    with pytest.raises(ValueError, match="one or more beside the one"):
        jr.compare_all([frozen], against=frozen)
    with pytest.raises(ValueError, match=r"accuracy while learning needs two runs; rank queries"):
        jr.compare(greedy, inner_product("dense", test.theta))


@pytest.mark.parametrize(
    ("values", "groups", "message"),
    [
        ([[0.5, 1.0]], [0], r"groups must be \[2\], the question of each query, got \[1\]"),
        ([0.5, 1.0], [0, 1], r"values \[S, N\] must have 2 axes, got the shape \[2\]"),
        ([[0.5, np.inf]], [0, 1], "values must be finite numbers, or NaN where missing"),
        ([[np.nan, np.nan]], [0, 1], "values must be finite .* and not all missing"),
        ([["a", "b"]], [0, 1], "must be real numbers: got the dtype <U1"),
    ],
)
def test_differences_that_cannot_be_tested_are_refused(values, groups, message):
    with pytest.raises(ValueError, match=message):
        compare.compare_paired(values, groups, name="a", other="b")


def test_differences_and_groups_may_be_lists():
    values = np.random.default_rng(0).normal(size=(2, 30))
    found, want = (
        compare.compare_paired(x, y, name="a", other="b", resamples=100)
        for x, y in ((values.tolist(), [*range(30)]), (values, np.arange(30)))
    )
    assert found == want
