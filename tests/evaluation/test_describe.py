"""Statistics that describe a task, against hand computation and NumPy in float64."""

import json

import numpy as np
import pytest

import jaxret as jr

THETA = np.vstack([np.eye(4), [0, 0, 0, -1]])
QUERIES = [[0.9, 0.1, 0, 0], [0.2, 0.8, 0.1, 0], [0.9, 0.3, 0.2, 0], [0, 0.6, 0.1, 0.8]]
LABELS = [[0], [0], [1, 0], [1, 0, 2]]  # queries per tool: 4, 2, 1, 0, 0
GAINS = 1 / np.log2(2 + np.arange(4))


@pytest.fixture
def task():
    return jr.Task.from_arrays(THETA, QUERIES, LABELS, name="mine")


def test_counts_and_static_retrieval_are_those_by_hand(task):
    found = jr.describe(task)
    assert (found.name, found.tools, found.labelled_tools, found.queries) == ("mine", 5, 3, 4)
    assert found.labels_per_query == 7 / 4
    assert found.queries_per_tool == 2  # the median of 4, 2 and 1; with the zeros it would be 1
    assert found.accuracy == 2 / 4  # the first tool of the third query is one of two labels
    last = GAINS[1:].sum() / GAINS[:3].sum()  # labels of the last query are ranked second to fourth
    assert found.ndcg_at_10 == pytest.approx((1 + GAINS[1] + 1 + last) / 4)
    assert found.near_duplicates is None
    assert (
        str(found)
        == repr(found)
        == (
            "mine: 5 tools, 3 of them labels, 4 queries (1.75 labels each, 2 a tool), "
            "near-duplicates —, static accuracy 0.500, static nDCG@10 0.841"
        )
    )


def test_parts_and_absent_tools_are_described_over_the_whole_catalogue(task):
    found = jr.describe(task.select([1, 3]))
    assert (found.tools, found.labelled_tools, found.queries) == (5, 3, 2)
    assert (found.queries_per_tool, found.accuracy) == (1.0, 0.0)
    there = jr.Task.from_arrays(THETA, QUERIES, LABELS, available=[True, True, True, False, True])
    assert jr.describe(there).accuracy == 3 / 4  # the last query's top tool is absent
    assert jr.describe(there).tools == 5


def test_texts_are_described_without_vectors(tmp_path):
    texts = ["Pay the five bills now", "pay: the FIVE bills!", "Send a mail", "Send it"]
    tools = [{"id": tool, "documentation": f"It does {tool}."} for tool in ("pay", "send", "rest")]
    queries = [{"id": t, "query": t, "labels": [t.split()[0].lower().strip(":")]} for t in texts]
    for name, rows in (("tools", tools), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = jr.describe(jr.load_task("jsonl", tmp_path, encoder=None))
    assert (found.tools, found.labelled_tools, found.queries) == (3, 2, 4)
    assert found.near_duplicates == 2 / 4  # overlap 4/5 in one pair, 1/4 in the other
    assert (found.accuracy, found.ndcg_at_10) == (None, None)
    assert str(found).endswith("near-duplicates 0.500, static accuracy —, static nDCG@10 —")
