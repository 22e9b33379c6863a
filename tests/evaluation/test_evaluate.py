"""Evaluation of everything that ranks, against ir-measures and trec_eval."""

from dataclasses import replace
from functools import partial

import ir_measures
import jax.numpy as jnp
import numpy as np
import pytest
from ir_measures import R, Success, nDCG

import jaxret as jr
from jaxret.evaluation.evaluate import evaluate_each
from jaxret.retrieval import Ranking, Reranker
from jaxret.retrieval.dense import inner_product

simulate = partial(jr.simulate, exposures=2, seeds=2, form="scan")


@pytest.fixture(scope="module")
def run(task):
    return simulate(jr.greedy(tau=0.1, eta=0.02), task)


def as_trec_eval(task, theta, measure):
    """Return the measure of every query as trec_eval computes it."""
    scores = task.queries.astype(np.float64) @ theta.astype(np.float64).T
    ranked = {str(n): dict(zip(task.ids, row, strict=True)) for n, row in enumerate(scores)}
    right = {str(n): {task.ids[i]: 1 for i in row if i >= 0} for n, row in enumerate(task.labels)}
    each = {one.query_id: one.value for one in ir_measures.iter_calc([measure], right, ranked)}
    return np.array([each[str(n)] for n in range(len(task))])


def test_a_matrix_is_ranked_as_trec_eval_does(task):
    oracle = {"accuracy": Success @ 1, "recall@3": R @ 3, "ndcg@5": nDCG @ 5, "ndcg@10": nDCG @ 10}
    values = evaluate_each(task.theta, task, tuple(oracle))
    for name, measure in oracle.items():
        np.testing.assert_allclose(values[name][0], as_trec_eval(task, task.theta, measure))
    assert jr.evaluate(task.theta, task)["ndcg@10"].values.shape == (1,)


def test_a_run_is_ranked_seed_by_seed(run, task):
    got = jr.evaluate(run, task, metrics=("ndcg@10", "accuracy"))
    want = [as_trec_eval(task, np.asarray(t), nDCG @ 10).mean() for t in run.states.theta]
    np.testing.assert_allclose(got["ndcg@10"].values, want, rtol=1e-5)
    assert got["ndcg@10"].mean == pytest.approx(np.mean(want))
    assert got["ndcg@10"].error == pytest.approx(np.std(want, ddof=1) / 2**0.5)
    assert list(got) == ["ndcg@10", "accuracy"]


def test_groups_of_queries_are_averaged_apart(run, task):
    by = np.where(task.labels[:, 0] < 6, "low", "high")
    got = jr.evaluate(run, task, metrics=("recall@1",), by=by)
    assert list(got) == ["high", "low"]
    for group, values in got.items():
        part = jr.evaluate(run, task.select(by == group), metrics=("recall@1",))
        np.testing.assert_allclose(values["recall@1"].values, part["recall@1"].values)
    with pytest.raises(ValueError, match=r"by must be \[60\], one group per query, got \[3\]"):
        jr.evaluate(run, task, by=[1, 2, 3])


def test_a_part_of_the_queries_is_ranked_with_its_own_prior_scores(small):
    scores = np.random.default_rng(0).random((60, 12))
    task = small(prior=scores)
    run = simulate(jr.hybrid(lexical=0.6), task)
    part = np.stack([np.arange(60) % 3 == 0, np.arange(60) >= 40])
    best = (0.4 * task.queries @ task.theta.T + 0.6 * scores).argmax(axis=1)
    right = best == task.labels[:, 0]
    want = [right[mask].mean() for mask in part]
    got = jr.evaluate(run, task, metrics=("accuracy",), part=part)["accuracy"]
    np.testing.assert_allclose(got.values, want, rtol=1e-6)


def test_absent_tools_are_not_ranked(small):
    there = np.arange(12) % 3 > 0
    task = small(available=there)
    frozen = simulate(jr.greedy(tau=0.1, eta=0.0), task)
    names = ("ndcg@10", "recall@12")
    of_run, of_matrix = evaluate_each(frozen, task, names), evaluate_each(task.theta, task, names)
    of_embeddings = evaluate_each(frozen.embeddings(), task, names)
    absent = ~there[task.labels[:, 0]]
    for name in names:
        assert not of_run[name][:, absent].any()
        for seed in of_run[name]:
            np.testing.assert_allclose(seed, of_matrix[name][0])
            np.testing.assert_allclose(seed, of_embeddings[name][0])
    assert of_run["recall@12"][:, ~absent].all()


def test_embeddings_have_their_own_absent_tools(run, small):
    """The availability of the task does not change the ranking of saved embeddings."""
    away = np.arange(12) % 4 == 1
    task = small()
    saved = replace(run.embeddings(), available=~away)
    scores = task.queries.astype(np.float64) @ np.asarray(run.states.theta[0], np.float64).T
    kept = np.where(away, -np.inf, scores)
    hit = kept.argmax(axis=1) == task.labels[:, 0]
    assert hit.any()
    assert (hit != (scores.argmax(axis=1) == task.labels[:, 0])).any()
    for other in (task, small(available=np.arange(12) % 4 != 2), small(available=~away)):
        np.testing.assert_array_equal(evaluate_each(saved, other, ["accuracy"])["accuracy"][0], hit)


def full_lists(task, theta):
    """Rank all tools of each query by inner product; ties go to the lower index."""
    scores = task.queries @ theta.T
    return np.argsort(-scores, axis=1, kind="stable")


@pytest.mark.parametrize("available", [None, np.arange(12) % 3 > 0])
def test_retrievers_and_lists_are_ranked_as_rows_are(small, available):
    task = replace(small(available=available), texts=("not read by vectors",) * 60)
    names = ("accuracy", "recall@3", "ndcg@10", "completeness@20")
    want = evaluate_each(task.theta, task, names)
    lists = full_lists(task, task.theta)
    ranking = Ranking(lists.astype(np.int32), np.zeros(lists.shape, np.float32))
    for ranked in (inner_product("dense", task.theta), lists, jnp.asarray(lists), ranking):
        found = evaluate_each(ranked, task, names)
        for name in names:
            np.testing.assert_allclose(found[name], want[name], atol=1e-6)
    whole = jr.evaluate(lists.tolist(), task, metrics=("recall@12",))["recall@12"].mean
    assert whole == jr.evaluate(task.theta, task, metrics=("recall@12",))["recall@12"].mean


def test_lists_may_differ_in_length(task):
    lists = [[int(row[0])] * (n % 2) for n, row in enumerate(task.labels)]  # every second is empty
    found = jr.evaluate(lists, task, metrics=("accuracy", "recall@1"))
    assert found["accuracy"].mean == found["recall@1"].mean == 0.5


def test_a_reranker_sorts_the_lists_of_its_first_stage(task):
    """The reranker prefers large indices, so a label leads if it is the largest of 3 candidates."""
    lists = full_lists(task, task.theta)[:, :3].astype(np.int32)
    first = Ranking(lists, np.zeros(lists.shape, np.float32))
    reranker = Reranker("last", np.asarray, (), lambda params, features, items: 1.0 * items)
    found = evaluate_each(reranker, task, ("accuracy", "recall@3"), first=first)
    np.testing.assert_array_equal(found["accuracy"][0], lists.max(axis=1) == task.labels[:, 0])
    right = (lists == task.labels[:, :1]).any(axis=1)
    np.testing.assert_array_equal(found["recall@3"][0], right)
    with pytest.raises(ValueError, match=r"last sorts the candidates of a first stage: give their"):
        jr.evaluate(reranker, task)
    with pytest.raises(ValueError, match=r"cuts \[10\] do not fit lists of 3 items: retrieve more"):
        jr.evaluate(reranker, task, first=first)


def test_an_object_that_cannot_rank_is_named_in_one_line(task):
    lists = full_lists(task, task.theta)
    twice, outside = lists.copy(), lists.copy()
    twice[4, 1] = twice[4, 0]
    outside[7, 2] = 12
    cases = {
        "Learner does not rank: give a run, embeddings, rows of floats": jr.greedy(),
        "str does not rank": "greedy",
        "list does not rank": [[0.5, 1.0], [0.25]],
        "ndarray does not rank": task.theta[0],
        "dict does not rank": {"theta": task.theta},
        "there are 3 lists of positions and 60 queries in small; integers are": lists[:3],
        "the list of query 4 has a tool twice": twice,
        r"the list of query 7 has a position outside -1 \.\. 11": outside,
        "less has 5 tools and small 12": inner_product("less", task.theta[:5]),
        r"cuts \[10\] do not fit lists of 4 items": lists[:, :4],
    }
    for message, ranked in cases.items():
        with pytest.raises(ValueError, match=message) as error:
            jr.evaluate(ranked, task)
        assert "\n" not in str(error.value)


def test_wrong_arguments_of_evaluate_are_refused(run, task, small):
    other = small(items=13)
    renamed = small(ids=[f"other_{i}" for i in range(12)])
    for wrong in (other, renamed):
        for ranked in (run, run.embeddings()):
            with pytest.raises(ValueError, match=r"12 tools were learnt, and small has 1[23]"):
                jr.evaluate(ranked, wrong)
    with pytest.raises(ValueError, match=r"the rows are \[12, 8\] and those of small \[13, 8\]"):
        jr.evaluate(task.theta, other)
    for name in ("ndcg", "ndcg@0", "mrr@10", "recall@ten"):
        with pytest.raises(ValueError, match="metric must be accuracy or one of"):
            jr.evaluate(run, task, metrics=(name,))
    with pytest.raises(ValueError, match="metrics must be a list of names, got the single"):
        jr.evaluate(run, task, metrics="ndcg@10")


def test_an_estimate_says_how_far_to_trust_it():
    three = jr.Estimate.of([0.1, 0.2, 0.6])
    assert (three.mean, three.error) == pytest.approx((0.3, 0.1527525))
    assert str(three) == repr(three) == "0.300 ± 0.153"
    assert str(jr.Estimate.of(0.25)) == "0.250 ± —"
    assert str(jr.Estimate.of([151.0, 153.0])) == "152.0 ± 1.0"
    apart = three - jr.Estimate.of([0.0, 0.1, 0.5])
    assert (apart.mean, apart.error) == pytest.approx((0.1, 0.0))
    with pytest.raises(ValueError, match="needs equal seeds, got 3 and 1"):
        _ = three - jr.Estimate.of(0.1)


def test_among_equal_scores_the_earlier_tool_is_shown_and_ranked_first(task):
    twins = task.with_theta(np.repeat(task.theta[::2], 2, axis=0))  # rows 2 i and 2 i + 1 are equal
    run = simulate(jr.greedy(tau=0.1, eta=0.0), twins)
    best = (twins.queries @ twins.theta.T).argmax(axis=1)
    assert (best % 2 == 0).all()
    np.testing.assert_array_equal(run.trace.item[0], best[run.order[0]])
    np.testing.assert_array_equal(run.embeddings(0).rank(twins.queries, 1)[:, 0], best)
    right = best == twins.labels[:, 0]
    assert jr.evaluate(run, twins, ["accuracy"])["accuracy"].mean == pytest.approx(right.mean())


def test_the_items_of_a_ranking_may_be_lists(task):
    lists = full_lists(task, task.theta)
    want = jr.evaluate(lists, task)["ndcg@10"].mean
    assert jr.evaluate(Ranking(lists.tolist(), None), task)["ndcg@10"].mean == want


def test_arrays_that_would_be_misread_are_refused(task):
    lists = full_lists(task, task.theta)
    mask = np.zeros((60, 12), bool)
    cases = [
        ({"ranked": mask}, "ndarray does not rank: give a run, embeddings, rows of floats"),
        ({"ranked": [["mail"] * 10] * 60}, "list does not rank"),
        ({"ranked": [[True], [True, False]]}, "list does not rank"),
        ({"ranked": Ranking(lists + 0.5, None)}, "items of a ranking must be whole numbers, got f"),
        ({"part": np.arange(60)}, "part must be a mask of True and False, got positions"),
        ({"part": np.r_[np.ones(59), np.nan]}, "part must be a mask of True and False"),
        ({"by": [1.0] * 59 + [np.nan]}, "by must be a group per query, got NaN for query 59"),
        ({"metrics": ()}, "metrics must be a list of one or more names"),
    ]
    for arguments, message in cases:
        given = {"ranked": lists, "task": task} | arguments
        with pytest.raises(ValueError, match=message) as refused:
            jr.evaluate(**given)
        assert "\n" not in str(refused.value)
    for wrong in ([], [[0.5, 1.0]], ["a"]):
        with pytest.raises(ValueError, match=r"number of seeds|values \[S\] must"):
            jr.Estimate.of(wrong)
