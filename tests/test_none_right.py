"""Queries without a right tool: tasks, splits, metrics, simulations and theory."""

import json

import numpy as np
import pytest

import jaxret as jr

METRICS = ("accuracy", "recall@2", "ndcg@2", "completeness@2")


@pytest.fixture(scope="module")
def both():
    """Make a task with unlabelled queries, and the same task without them."""
    rng = np.random.default_rng(0)
    theta, queries = rng.normal(size=(7, 4)), rng.normal(size=(40, 4))
    labels = [[int(rng.integers(7))] if n % 4 else [] for n in range(40)]
    labels[1] = [2, 5]
    task = jr.Task.from_arrays(theta, queries, labels, none_right=True, name="some")
    known = np.array([bool(one) for one in labels])
    rest = jr.Task.from_arrays(theta, queries[known], [one for one in labels if one])
    return task, rest, known


@pytest.fixture(scope="module")
def runs(both):
    """Simulate a learner in both forms."""
    learner, few = jr.orag(tau=0.5, eta=0.01), {"exposures": 3, "seeds": 2}
    return {form: jr.simulate(learner, both[0], **few, form=form) for form in ("scan", "blocked")}


def test_a_task_says_how_many_queries_have_no_right_tool(both):
    task, rest, known = both
    np.testing.assert_array_equal(task.answerable, known)
    assert "10 without a right tool" in repr(task)
    assert "without" not in repr(rest)
    assert rest.answerable.all()
    with pytest.raises(ValueError, match="query 0 has no label; drop it"):
        jr.Task.from_arrays(task.theta, task.queries, task.labels)
    with pytest.raises(ValueError, match=r"query 0 has the labels \[7\]: outside"):
        jr.Task.from_arrays(task.theta, task.queries[:1], [[7]], none_right=True)


def test_metrics_are_averages_over_the_other_queries(both):
    task, rest, known = both
    with pytest.warns(UserWarning, match="some: 10 of 40 queries have no right tool"):
        found = jr.evaluate(task.theta, task, METRICS)
    for name, one in jr.evaluate(rest.theta, rest, METRICS).items():
        assert found[name].mean == pytest.approx(one.mean, abs=1e-7)
    each = jr.evaluate_each(task.theta, task, METRICS)
    for values in each.values():
        np.testing.assert_array_equal(np.isnan(values[0]), ~known)


def test_a_group_without_a_right_tool_has_no_metric(both):
    task, rest, known = both
    with pytest.warns(UserWarning, match="10 of 40"):
        found = jr.evaluate(task.theta, task, ["accuracy"], by=known)
    assert np.isnan(found[False]["accuracy"].mean)
    whole = jr.evaluate(rest.theta, rest, ["accuracy"])["accuracy"]
    assert found[True]["accuracy"].mean == pytest.approx(whole.mean)


def test_a_part_counts_its_own_queries(both, runs, recwarn):
    task, _, known = both
    jr.evaluate(runs["scan"], task, ["accuracy"], part=known)
    assert not [one for one in recwarn if "right tool" in str(one.message)]


def test_parts_and_selections_keep_them(both):
    task, *_ = both
    parts = task.split((0.5, 0.5), seed=1)
    assert sum(int((~part.answerable).sum()) for part in parts) == 10
    assert task.select(~task.answerable).answerable.sum() == 0


def test_no_tool_works_for_them(both, runs):
    task, *_ = both
    for run in runs.values():
        right = task.answerable[run.order]
        assert (run.trace.success[~right] == 0).all()
        assert (run.trace.reward[~right] == 0).all()
        labels = task.labels[run.order]
        shown = (labels == run.trace.item[..., None]).any(axis=-1)
        np.testing.assert_array_equal(run.trace.success, shown & right)
        assert run.trace.success.any()


def test_regret_and_bounds_need_a_right_tool(runs):
    for function in (jr.regret, jr.bounds):
        with pytest.raises(ValueError, match="10 queries of some have no right tool"):
            function(runs["scan"])


def test_an_oracle_moves_only_where_a_tool_is_right(both):
    task, _rest, known = both
    order = np.arange(40)[None]
    learner = jr.full_information(tau=0.5, eta=0.05)
    run = jr.simulate(learner, task, order=order)
    alone = jr.simulate(learner, task, order=order[:, known])
    np.testing.assert_allclose(run.states.theta, alone.states.theta, atol=1e-5)
    assert not np.allclose(run.states.theta[0], task.theta, atol=1e-3)


def test_a_folder_may_have_queries_without_a_right_tool(tmp_path):
    tools = [{"id": one, "documentation": f"the tool {one}"} for one in "ab"]
    queries = [{"id": "1", "query": "one", "labels": ["b"]}]
    queries += [{"id": str(n), "query": f"none {n}", "labels": []} for n in (2, 3)]
    for name, rows in {"tools": tools, "queries": queries}.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    task = jr.load_task("jsonl", tmp_path, encoder=None, none_right=True)
    np.testing.assert_array_equal(task.labels, [[1], [-1], [-1]])
    assert task.select([1, 2]).answerable.sum() == 0
    with pytest.raises(ValueError, match="line 2: the labels of query '2' must be a list"):
        jr.load_task("jsonl", tmp_path, encoder=None)
    with pytest.raises(ValueError, match="'deskbank' has no option 'none_right'"):
        jr.load_task("deskbank", encoder=None, none_right=True)
