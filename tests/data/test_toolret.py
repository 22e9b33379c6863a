import json

import pytest

from jaxret.data import load
from jaxret.data.templates import template
from jaxret.data.toolret import CATEGORIES, benchmark
from tests.data.folders import write_lines, write_parquet


def label(*tools, relevance=1):
    return [{"id": tool, "doc": {"name": tool}, "relevance": relevance} for tool in tools]


def query(number, labels, instruction="Find a tool."):
    text = f"query {number}"
    return {"id": number, "query": text, "instruction": instruction, "labels": json.dumps(labels)}


QUERIES = {
    "apibank": [query("a0", label("web_0", "code_0")), query("a1", label("web_1"), "")],
    "toolink": [query("t0", label("code_0") + label("web_0", relevance=0))],
}
TOOLS = {
    "code": [{"id": "code_0", "documentation": "{'name': 'clock', 'description': None}"}],
    "web": [
        {"id": "web_0", "documentation": '{"name": "alarm", "description": "Rings."}'},
        {"id": "web_1", "documentation": "Weighs letters."},
    ],
}


def write_jsonl(folder, part, *rows):
    write_lines(folder / f"{part}.jsonl", *rows)


def write_shard(folder, part, *rows):
    write_parquet(folder / f"{part}-00000-of-00001.parquet", *rows)


@pytest.fixture(params=[write_jsonl, write_shard], ids=["jsonl", "parquet"])
def folder(request, tmp_path):
    for task, rows in QUERIES.items():
        request.param(tmp_path / "queries" / task, "queries", *rows)
    for part, rows in TOOLS.items():
        request.param(tmp_path / "tools" / part, "tools", *rows)
    (tmp_path / "queries/.cache").mkdir()  # a leftover of a download
    (tmp_path / "queries/README.md").write_text("about")
    return tmp_path


def test_toolret_loads_all_tasks_over_the_pool_of_all_tools(folder):
    dataset = load("toolret", folder)
    assert dataset.tool_ids == ("code_0", "web_0", "web_1")
    assert dataset.queries == ("Find a tool.\nquery a0", "query a1", "Find a tool.\nquery t0")
    assert dataset.split == ("apibank", "apibank", "toolink")
    assert dataset.labels.tolist() == [[1, 0], [2, -1], [0, -1]]
    assert dataset.documents[2] == "Weighs letters."
    texts = [template("orag_toolret")(document) for document in dataset.documents]
    assert texts == [TOOLS["code"][0]["documentation"], "alarm Rings.", "Weighs letters."]
    one = load("toolret", folder, tasks=["toolink"])
    assert one.query_ids == ("t0",)
    assert len(one.tool_ids) == 3


def test_unknown_tasks_and_labels_are_refused(folder):
    with pytest.raises(ValueError, match=r"unknown tasks \['gta'\]; known: apibank, toolink"):
        load("toolret", folder, tasks=["toolink", "gta"])
    write_jsonl(folder / "queries/gta", "queries", query("g0", label("custom_7")))
    with pytest.raises(ValueError, match=r"query 'g0' name unknown tools \['custom_7'\]"):
        load("toolret", folder)


@pytest.mark.parametrize("labels", ["not json", '{"id": "web_0"}', '[{"doc": 1}]', None])
def test_labels_of_another_form_are_refused(folder, labels):
    row = {"id": "g0", "query": "x", "instruction": "", "labels": labels}
    write_jsonl(folder / "queries/gta", "queries", row)
    with pytest.raises(ValueError, match="gta: labels of query 'g0' must be the JSON text"):
        load("toolret", folder)


def test_missing_columns_and_empty_folders_are_named(folder):
    (folder / "queries/gta").mkdir()
    with pytest.raises(FileNotFoundError, match=r"gta holds no \.jsonl or \.parquet file"):
        load("toolret", folder)
    write_shard(folder / "queries/mnms", "queries", {"id": "m0", "query": "x"})
    with pytest.raises(ValueError, match=r"columns \['instruction', 'labels'\] are missing"):
        load("toolret", folder, tasks=["mnms"])


def test_without_the_parts_or_a_network_the_error_says_what_belongs_there(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"queries does not exist; .*ToolRet-Queries"):
        load("toolret", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    message = "could not get mangopy/ToolRet-Queries .*ToolRet-Tools into DIR/tools .*path=DIR"
    with pytest.raises(OSError, match=message):
        load("toolret")


def test_the_benchmark_has_35_tasks_in_three_categories():
    counts = {name: len(tasks) for name, tasks in CATEGORIES.items()}
    assert counts == {"web": 19, "code": 7, "customized": 9}
    assert len({task for tasks in CATEGORIES.values() for task in tasks}) == 35


def test_the_benchmark_keeps_texts_instructions_and_pools_apart(folder):
    found = benchmark(folder)
    assert found.queries == ("query a0", "query a1", "query t0")
    assert found.instructions == ("Find a tool.", "", "Find a tool.")
    assert found.dataset.split == ("apibank", "apibank", "toolink")
    assert found.tasks == {"apibank": "web", "toolink": "code"}
    pools = dict(zip(found.dataset.tool_ids, found.pools, strict=True))
    assert pools == {"code_0": "code", "web_0": "web", "web_1": "web"}


def test_the_benchmark_counts_equal_queries_as_often_as_they_occur(folder):
    """`load` merges equal queries; a query's id may occur in another task as well."""
    rows = [query("a0", label("web_0")), query("a2", label("web_1"))]
    rows[1]["query"] = rows[0]["query"]
    write_jsonl(folder / "queries/mnms", "queries", *rows)
    found = benchmark(folder, tasks=["apibank", "mnms"])
    assert found.ids == ("a0", "a1", "a0", "a2")
    assert found.queries.count("query a0") == 3
    assert found.dataset.merged_queries == 0
    assert found.dataset.labels[:, 0].tolist() == [1, 2, 1, 2]
    assert load("toolret", folder, tasks=["mnms"]).merged_queries == 1


def test_the_last_relevance_counts_and_grades_are_refused_where_they_would_be_gains(folder):
    twice = label("web_0", "web_1") + label("web_0", relevance=0)
    write_jsonl(folder / "queries/mnms", "queries", query("m0", twice))
    assert benchmark(folder, tasks=["mnms"]).dataset.labels.tolist() == [[2]]
    write_jsonl(folder / "queries/mnms", "queries", query("m0", label("web_0", relevance=2)))
    assert load("toolret", folder, tasks=["mnms"]).labels.tolist() == [[1]]
    with pytest.raises(ValueError, match=r"'m0' has labels of relevance \{'web_0': 2\}; nDCG"):
        benchmark(folder, tasks=["mnms"])


@pytest.mark.parametrize("write", [write_jsonl, write_shard])
def test_a_custom_task_has_the_category_of_its_rows(folder, write):
    rows = [query("d0", label("web_0")) | {"category": "customized"}]
    write(folder / "queries/desk", "queries", *rows)
    assert benchmark(folder).tasks["desk"] == "customized"
    write(folder / "queries/gorilla-tensor", "queries", *rows)  # ToolRet's own table wins
    assert benchmark(folder).tasks["gorilla-tensor"] == "code"


@pytest.mark.parametrize("categories", [(None, None), ("web", "code"), ("webs", "webs")])
def test_a_task_of_unknown_category_is_refused(folder, categories):
    rows = [query(f"d{i}", label("web_0")) | {"category": x} for i, x in enumerate(categories)]
    write_jsonl(folder / "queries/desk", "queries", *rows)
    message = r"'desk' is none of ToolRet's 35: .*web, code, customized"
    with pytest.raises(ValueError, match=message):
        benchmark(folder)
