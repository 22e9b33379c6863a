"""Tests that the loaders agree with benchmarks that another program converted."""

import json

import numpy as np
import pytest

from jaxret.data import load
from jaxret.data.templates import template
from tests.data.folders import label_ids, read_lines


def test_ultratool_agrees_with_its_conversion(shared_data):
    dataset = load("ultratool", shared_data / "raw/ultratool/test.json")
    tools = read_lines(shared_data / "ultratool/tools.jsonl")
    queries = read_lines(shared_data / "ultratool/queries.jsonl")
    assert dataset.summary() == (
        "ultratool: 436 tools, 2,381 queries (1.00 labels a query, 1,000 questions), "
        "merged 1,696 duplicate tools, 0 duplicate queries"
    )
    assert dataset.tool_ids == tuple(tool["id"] for tool in tools)
    assert dataset.documents == tuple(tool["documentation"] for tool in tools)
    assert dataset.query_ids == tuple(query["id"] for query in queries)
    assert dataset.queries == tuple(query["query"] for query in queries)
    assert dataset.split == tuple(query["split"] for query in queries)
    assert label_ids(dataset) == [query["labels"] for query in queries]
    np.testing.assert_array_equal(dataset.groups, [query["question_index"] for query in queries])


def test_ultratool_loads_the_same_from_its_file_its_folder_and_its_conversion(shared_data):
    first, *others = (
        load("ultratool", shared_data / path)
        for path in ("raw/ultratool/test.json", "raw/ultratool", "ultratool")
    )
    for other in others:
        assert other.name == "ultratool"
        assert (other.documents, other.queries) == (first.documents, first.queries)
        np.testing.assert_array_equal(other.labels, first.labels)
        np.testing.assert_array_equal(other.groups, first.groups)


def test_toollens_agrees_with_its_conversion(shared_data):
    dataset = load("toollens", shared_data / "raw/toollens")
    tools = read_lines(shared_data / "toollens/tools.jsonl")
    queries = {row["id"]: row for row in read_lines(shared_data / "toollens/queries.jsonl")}
    assert dataset.summary().startswith("toollens: 464 tools, 18,770 queries (2.66 labels")
    assert [f"toollens_{i}" for i in dataset.tool_ids] == [tool["id"] for tool in tools]
    assert dataset.documents == tuple(tool["documentation"] for tool in tools)
    assert (dataset.split.count("train"), dataset.split.count("test")) == (16893, 1877)
    for i, text, split, labels in zip(
        dataset.query_ids, dataset.queries, dataset.split, label_ids(dataset), strict=True
    ):
        row = queries[f"toollens_q{i}"]
        assert (row["query"], row["split"]) == (text, split)
        assert set(row["labels"]) == {f"toollens_{label}" for label in labels}


def test_bfcl_is_counted_and_agrees_with_its_conversion_where_the_categories_overlap(shared_data):
    dataset = load("bfcl", shared_data / "raw/bfcl")
    asked = [row for file in (shared_data / "raw/bfcl").glob("*.json") for row in read_lines(file)]
    functions = [json.dumps(f, sort_keys=True) for row in asked for f in row["function"]]
    assert len(dataset.tool_ids) == len(set(functions))
    assert dataset.merged_tools == len(functions) - len(set(functions))
    assert len(asked) == len(dataset.queries) + dataset.merged_queries == 858
    documents = dict(zip(dataset.tool_ids, dataset.documents, strict=True))
    row_of = {query: i for i, query in enumerate(dataset.query_ids)}
    tools = read_lines(shared_data / "bfcl-v4-nonlive/tools.jsonl")
    converted = {tool["id"]: tool["documentation"] for tool in tools}
    labels, assigned = label_ids(dataset), 0
    for row in read_lines(shared_data / "bfcl-v4-nonlive/queries.jsonl"):
        if row["category"] not in ("simple_python", "multiple"):
            continue
        assert all(documents[tool] == converted[tool] for tool in row["candidates"])
        if row["id"] in row_of:
            i = row_of[row["id"]]
            assert dataset.queries[i] == row["query"]
            assert set(row["labels"]) <= set(labels[i])
            assigned += 1
    assert assigned == sum(split != "live_simple" for split in dataset.split)


def test_a_bfcl_question_of_several_categories_has_all_their_answers(shared_data):
    dataset = load("bfcl", shared_data / "bfcl-v4-nonlive")
    assert dataset.name == "bfcl"
    assert dataset.merged_queries == 1000 - 900
    expected: dict[str, set[str]] = {}
    for row in read_lines(shared_data / "bfcl-v4-nonlive/queries.jsonl"):
        expected.setdefault(row["query"], set()).update(row["labels_same_text"])
    for text, labels in zip(dataset.queries, label_ids(dataset), strict=True):
        assert set(labels) == expected[text]


@pytest.mark.parametrize(
    ("folder", "tools", "queries", "merged"),
    [
        ("api-bank", 71, 406, 59),
        ("apibench-torchhub", 94, 1023, 0),
        ("bfcl-v4-nonlive", 1123, 1000, 100),
        ("deskbank", 168, 2016, 0),
        ("multihop-rag-500", 438, 429, 0),
        ("restgpt-tmdb", 54, 99, 0),
        ("scifact-subset", 2101, 265, 0),
        ("toolbench-stable", 2490, 764, 0),
        ("toollens", 464, 18770, 0),
        ("ultratool", 436, 2381, 0),
    ],
)
def test_every_folder_of_the_general_layout_loads_and_gives_text(
    shared_data, folder, tools, queries, merged
):
    dataset = load("jsonl", shared_data / folder)
    assert dataset.name == folder
    assert (len(dataset.tool_ids), dataset.merged_tools) == (tools, 0)
    assert (len(dataset.queries), dataset.merged_queries) == (queries - merged, merged)
    for name in ("full", "name_description", "orag_toolret", "raw"):
        assert all(map(template(name), dataset.documents))


def test_the_whole_pool_of_ultratool_has_its_distractors(shared_data):
    extra = ["tools_extra.jsonl", "tools_extra_namedesc.jsonl"]
    dataset = load("ultratool", shared_data / "ultratool", extra=extra)
    assert (len(dataset.tool_ids), dataset.merged_tools) == (2032, 0)
    assert dataset.labels.max() < 436


def test_full_text_of_ultratool_has_the_words_of_the_papers_recipe(shared_data):
    for document in load("ultratool", shared_data / "raw/ultratool").documents:
        marks = str.maketrans("", "", '{}[]"\\')
        assert isinstance(document, dict)
        if len(template("orag_ultratool")(document)) < 8192:
            papers = template("orag_ultratool")(document).translate(marks)
            assert papers.split() == template("full")(document).translate(marks).split()
