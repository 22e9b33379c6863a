"""Rankings of a run, of embeddings and of a matrix, against ir-measures and against one another."""

import ir_measures
import numpy as np
import pytest
from ir_measures import R, Success, nDCG

import jaxret as jr
from jaxret.evaluation.evaluate import evaluate_each


@pytest.fixture(scope="module")
def run(task):
    return jr.simulate(jr.greedy(tau=0.1, eta=0.02), task, exposures=2, seeds=2)


def as_trec_eval(task, theta, measure):
    """The measure of every query."""
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
    with pytest.raises(ValueError, match=r"by must be \[60\], a group a query, got \[3\]"):
        jr.evaluate(run, task, by=[1, 2, 3])


def test_absent_tools_are_not_ranked(small):
    there = np.arange(12) % 3 > 0
    task = small(available=there)
    frozen = jr.simulate(jr.frozen(), task)
    names = ("ndcg@10", "recall@12")
    of_run, of_matrix = evaluate_each(frozen, task, names), evaluate_each(task.theta, task, names)
    of_embeddings = evaluate_each(frozen.embeddings(), task, names)
    absent = ~there[task.labels[:, 0]]
    for name in names:
        assert not of_run[name][:, absent].any()
        np.testing.assert_allclose(of_run[name], of_matrix[name])
        np.testing.assert_allclose(of_run[name], of_embeddings[name])
    assert of_run["recall@12"][:, ~absent].all()


def test_what_cannot_be_ranked_is_refused(run, task, small):
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
