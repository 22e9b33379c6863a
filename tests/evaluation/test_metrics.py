from functools import partial

import ir_measures
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ir_measures import R, Success, nDCG

from jaxret.evaluation import metrics
from jaxret.evaluation.metrics import (
    UNRANKED,
    accuracy,
    completeness_at_k,
    evaluate_ranking,
    evaluate_scores,
    ndcg_at_k,
    ranks,
    ranks_in,
    recall_at_k,
)

# Ids as real data sets have them: case, digits, prefixes, accents, characters beyond 16 bits.
AWKWARD = ["weather", "weather_v2", "weather_v10", "Weather.now", "a-b", "a.b", "a_b"]
AWKWARD += ["überweisung", "zahlung", "查询天气", "🚆.book", "\ufb01nance"]
TOOL_IDS = AWKWARD + [f"bank{i}.list_{i % 7}_postings" for i in range(48)]
TOOL_IDS.sort(key=str.encode, reverse=True)  # so that rows are in trec_eval's order of ties
I, L, N, K = len(TOOL_IDS), 13, 80, 10
MEASURES = (R @ K, nDCG @ K, Success @ 1)


@pytest.fixture
def tied():
    """Make scores with about fifteen items per value, and 1 to 13 labels per query."""
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, (N, I)).astype(np.float32)
    labels = np.full((N, L), -1, np.int32)
    for row in labels:
        count = rng.integers(1, L + 1)
        row[:count] = rng.choice(I, count, replace=False)
    return scores, labels


def trec_eval(measures, scores, labels, available=None):
    """Compute measures of each query with the reference implementation."""
    ranked = range(I) if available is None else np.flatnonzero(available)
    qrels = {f"q{n}": {TOOL_IDS[i]: 1 for i in row if i >= 0} for n, row in enumerate(labels)}
    run = {f"q{n}": {TOOL_IDS[i]: float(row[i]) for i in ranked} for n, row in enumerate(scores)}
    values = {measure: np.zeros(N) for measure in measures}
    for metric in ir_measures.iter_calc(list(values), qrels, run):
        values[metric.measure][int(metric.query_id[1:])] = metric.value
    return values


def evaluate(theta, queries, labels, available=None):
    theta, queries, labels = map(jnp.asarray, (theta, queries, labels))
    return evaluate_scores(lambda x: x @ theta.T, queries, labels, available=available)


@jax.jit
def all_ranks(scores, labels, available=None):
    return jax.vmap(ranks, in_axes=(0, 0, None))(scores, labels, available)


one_ranks, list_ranks = jax.jit(ranks), jax.jit(ranks_in)


@partial(jax.jit, static_argnames="k")
def metrics_of(rank, labels, k):
    """Return accuracy, recall, nDCG and completeness, in one program."""
    at_k = (metric(rank, labels, k) for metric in (recall_at_k, ndcg_at_k, completeness_at_k))
    return accuracy(rank, labels), *at_k


@pytest.mark.parametrize("share_available", [1.0, 0.5])
def test_tied_scores_are_counted_as_trec_eval_counts_them(tied, share_available):
    scores, labels = tied
    available = np.random.default_rng(1).random(I) < share_available
    expected = trec_eval(MEASURES, scores, labels, available)
    rank = all_ranks(scores, labels, jnp.asarray(available))
    first, recall, ndcg, _ = metrics_of(rank, labels, K)
    np.testing.assert_allclose(recall, expected[R @ K], atol=1e-6)
    np.testing.assert_allclose(ndcg, expected[nDCG @ K], atol=1e-6)
    np.testing.assert_array_equal(first, expected[Success @ 1])


def test_ranks_are_the_places_in_a_sorted_list(tied):
    scores, labels = tied
    rank = np.asarray(all_ranks(scores, labels))
    for n in range(N):
        ordered = sorted(range(I), key=lambda i: -scores[n, i])
        expected = [ordered.index(i) if i >= 0 else UNRANKED for i in labels[n]]
        assert rank[n].tolist() == expected
    nans = one_ranks(np.full(4, np.nan, np.float32), np.array([1, 2, -1]))
    assert nans.tolist() == [3, 3, UNRANKED]  # no label is first


def test_a_query_worked_by_hand():
    # Ranking: item 3 (0.9), then 0 and 2 (0.5, by index), then 1 (0.1).
    scores = np.array([0.5, 0.1, 0.5, 0.9], np.float32)
    labels = np.array([0, 1, -1])
    rank = one_ranks(scores, labels)
    assert rank.tolist() == [1, 3, UNRANKED]
    first, recall, ndcg, complete = metrics_of(rank, labels, 3)
    assert (first, recall, complete) == (0.0, 0.5, 0.0)
    # DCG is 1 / log2(3) = 0.630930; the ideal DCG is 1 + 1 / log2(3) = 1.630930.
    np.testing.assert_allclose(ndcg, 0.630930 / 1.630930, rtol=1e-6)
    assert metrics_of(rank, labels, 4)[3] == 1.0


def test_an_absent_label_is_missed_even_beyond_the_end_of_the_list():
    labels, present = np.array([0, 1, -1]), np.array([False, True, True])
    rank = one_ranks(np.array([3.0, 2.0, 1.0], np.float32), labels, present)
    assert rank.tolist() == [UNRANKED, 0, UNRANKED]
    _, recall, ndcg, complete = metrics_of(rank, labels, 4)
    assert (recall, complete) == (0.5, 0.0)
    np.testing.assert_allclose(ndcg, 1 / 1.630930, rtol=1e-6)


def test_queries_and_lists_without_labels_have_no_metrics():
    of_scores = evaluate(jnp.eye(3), jnp.ones((1, 3)), jnp.full((1, 2), -1))
    of_lists = evaluate_ranking(np.array([[0, 1]]), np.array([[-1]]), (1, 2))
    for values in (of_scores, of_lists):
        assert all(np.isnan(value).all() for value in values.values())


@pytest.mark.parametrize(("chunk", "share_available"), [(1, 0.5), (32, 1.0), (200, 0.5)])
def test_scores_agree_with_trec_eval_for_every_chunk(tied, chunk, share_available, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", chunk)
    rng = np.random.default_rng(2)
    theta = rng.integers(-1, 2, (I, 4)).astype(np.float32)  # exact scores, many ties
    queries = rng.integers(-1, 2, (N, 4)).astype(np.float32)
    labels = tied[1]
    available = rng.random(I) < share_available
    expected = trec_eval(MEASURES, queries @ theta.T, labels, available)
    got = evaluate(theta, queries, labels, available)
    assert set(got) == {"accuracy", "completeness@10", "ndcg@10", "recall@10"}
    np.testing.assert_allclose(got["recall@10"], expected[R @ K], atol=1e-6)
    np.testing.assert_allclose(got["ndcg@10"], expected[nDCG @ K], atol=1e-6)
    np.testing.assert_array_equal(got["accuracy"], expected[Success @ 1])
    np.testing.assert_array_equal(got["completeness@10"], expected[R @ K] == 1.0)


def lists_of(scores, k):
    """Return the k best items of each query in trec_eval's order."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k].astype(np.int32)


@pytest.mark.parametrize("length", [20, I])
def test_lists_are_evaluated_as_trec_eval_evaluates_them_at_every_cut(tied, length):
    scores, labels = tied
    got = evaluate_ranking(lists_of(scores, length), labels, (5, 10, 20))
    measures = {Success @ 1: "accuracy"}
    for k in (5, 10, 20):
        measures |= {R @ k: f"recall@{k}", nDCG @ k: f"ndcg@{k}"}
    for measure, values in trec_eval(measures, scores, labels).items():
        np.testing.assert_allclose(got[measures[measure]], values, rtol=0, atol=1e-6)
    for k in (5, 10, 20):
        np.testing.assert_array_equal(got[f"completeness@{k}"], got[f"recall@{k}"] == 1.0)
    assert len(got) == 1 + 3 * 3


def test_ranks_in_a_list_are_those_of_the_scores_as_far_as_the_list_goes(tied):
    scores, labels = tied
    whole = np.asarray(all_ranks(scores, labels))
    np.testing.assert_array_equal(list_ranks(lists_of(scores, I), labels), whole)
    short = np.where(whole < 7, whole, UNRANKED)
    np.testing.assert_array_equal(list_ranks(lists_of(scores, 7), labels), short)
    padded = ranks_in(np.array([2, 0, -1]), np.array([0, 1, -1]))  # pads do not match
    assert padded.tolist() == [1, UNRANKED, UNRANKED]


def test_cuts_beyond_a_list_and_lists_without_queries_are_refused():
    with pytest.raises(ValueError, match=r"cuts \[3, 0\] do not fit lists of 2 items"):
        evaluate_ranking(np.array([[0, 1]]), np.array([[0]]), (1, 3, 0))
    with pytest.raises(ValueError, match="there are 1 rankings and labels of 2 queries"):
        evaluate_ranking(np.array([[0, 1]]), np.array([[0], [1]]), (1,))


def test_lists_are_evaluated_as_arrays_are():
    theta, queries, labels = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[1], [1]]
    assert evaluate(theta, queries, labels)["accuracy"].tolist() == [0, 1]
    assert evaluate_ranking([[0, 1], [1, 0]], labels, (1,))["recall@1"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: evaluate_ranking(np.eye(2, dtype=int), [[0]], (1,)), "2 rankings and labels of 1"),
        (lambda: evaluate_ranking([[0, 1]], [0], (1,)), r"labels must have 2 axes, .* \[1\]"),
        (lambda: evaluate_ranking([[0, 1]], [[0.5]], (1,)), "labels must be whole numbers, got"),
        (lambda: evaluate_ranking([[0.5, 1]], [[0]], (1,)), "items must be whole numbers, got 0.5"),
        (
            lambda: evaluate_ranking([["a"]], [[0]], (1,)),
            "items must be real numbers: got the dtype",
        ),
        (lambda: evaluate_ranking([[True]], [[0]], (1,)), "items must be whole numbers, got bits"),
    ],
)
def test_rankings_and_labels_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)
