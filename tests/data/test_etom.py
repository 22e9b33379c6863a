"""The ETOM loader, on a few rows in both layouts and on the counts of the full data set."""

import json

import pytest

from jaxret.data import load
from jaxret.data.split import own_split
from jaxret.data.templates import template
from tests.data.folders import label_ids, read_lines, write_lines

SERVERS = {
    "Files MCP": {"read_file": "Reads a file.", "list": "Lists a folder."},
    "Disk MCP": {"cat": "Prints a file."},
}
SUMMARY = "Serves what lies on a disk."
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "additionalProperties": False,
    "properties": {"path": {"type": "string", "description": "Where it is."}},
    "type": "object",
}
READ, LIST, CAT = "Files MCP::read_file", "Files MCP::list", "Disk MCP::cat"
#: level -> (number, text, equivalent tools of each step) of its queries
ASKED = {
    1: [(1, "On Files, read a.txt", [[READ]]), (7, "On Disk, print b.txt", [[CAT]])],
    2: [
        (1, "What is in c.txt?", [[READ, CAT + " "], [CAT, READ]]),  # each tool first in one list
        (42, "Comment on it", [["Files MCP Files::comment"]]),  # not in the registry
    ],
    3: [(1, "List d, then read e.txt", [[LIST], [READ]])],
    4: [(2, "Find f.txt and read it", [[LIST], [READ, CAT]])],
}


def registry():
    servers = [
        {
            "server_name": server,
            "server_summary": SUMMARY,
            "server_url": "https://example.org",
            "tools": [
                {"tool_name": name, "tool_description": about, "input_schema": SCHEMA}
                for name, about in tools.items()
            ],
        }
        for server, tools in SERVERS.items()
    ]
    again = {"tool_name": "cat", "tool_description": "Again.", "input_schema": SCHEMA}
    return {"servers": [*servers, servers[0] | {"server_name": "Disk MCP", "tools": [again]}]}


def original(folder):
    """Write the authors' layout: a tool per step at levels 1 and 3, lists of tools at 2 and 4."""
    (folder / "queries").mkdir()
    (folder / "mcp_registry.json").write_text(json.dumps(registry()))
    for level, queries in ASKED.items():
        rows = []
        for number, text, steps in queries:
            tools = [[{"tool_id": tool, "dependencies": []} for tool in step] for step in steps]
            named = [step[0] for step in tools] if level in (1, 3) else tools
            rows.append({"query_id": number, "query": text, "ground_truth_tools": named})
        (folder / "queries" / f"level_{level}.json").write_text(json.dumps(rows))
    return folder


def converted(folder):
    """Write the same data in the general layout."""
    tools = [
        {
            "id": f"{server}::{name}",
            "name": name,
            "documentation": {
                "name": name,
                "description": about,
                "server": server,
                "server_summary": SUMMARY,
                "parameters": SCHEMA,
            },
        }
        for server, names in SERVERS.items()
        for name, about in names.items()
    ]
    queries = [
        {"id": f"l{level}_{n}", "query": text, "labels": [], "level": level, "alternatives": steps}
        for level, rows in ASKED.items()
        for n, text, steps in rows
        if n != 42
    ]
    for name, rows in (("tools", tools), ("queries", queries)):
        write_lines(folder / f"{name}.jsonl", *rows)
    return folder


@pytest.fixture(params=[original, converted])
def folder(request, tmp_path):
    return request.param(tmp_path)


@pytest.mark.parametrize(
    ("name", "levels", "queries", "labels"),
    [
        ("etom", None, ("l1_1", "l1_7", "l2_1"), [[READ], [CAT], [READ, CAT]]),
        ("etom", [2], ("l2_1",), [[READ, CAT]]),
        ("etom-plans", [3], ("l3_1",), [[LIST, READ]]),
        ("etom-plans", [4, 3], ("l3_1", "l4_2"), [[LIST, READ], [LIST, READ, CAT]]),
    ],
)
def test_suitable_tools_and_all_tools_of_a_plan_are_labels(folder, name, levels, queries, labels):
    dataset = load("etom", folder) if levels is None else load("etom", folder, levels=levels)
    assert dataset.name == name
    assert dataset.tool_ids == (READ, LIST, CAT)
    assert (dataset.query_ids, label_ids(dataset)) == (queries, labels)
    assert dataset.split == tuple(f"level_{query[1]}" for query in queries)
    listed_again = (folder / "mcp_registry.json").exists()
    assert dataset.merged_tools == int(listed_again)


@pytest.mark.parametrize("levels", [[1, 3], [5], [], ["1"]])
def test_levels_whose_labels_mean_different_things_are_not_mixed(folder, levels):
    with pytest.raises(ValueError, match=r"levels must be of 1 and 2, .* or of 3 and 4, .* got \["):
        load("etom", folder, levels=levels)


def test_a_tool_has_its_server_and_its_parameters_in_its_full_text(folder):
    dataset = load("etom", folder)
    assert template("full")(dataset.documents[2]) == (
        "Name: cat Description: Prints a file. Server: Disk MCP "
        "Server summary: Serves what lies on a disk. "
        "Parameters: properties: path: type: string, description: Where it is., type: object"
    )
    for name in ("name_description", "orag_ultratool", "orag_toolret"):
        assert "Prints a file." in template(name)(dataset.documents[2])
    with pytest.raises(ValueError, match="'cat' has no 'terse'"):
        template("terse")(dataset.documents[2])


def test_a_label_that_no_tool_has_is_refused(tmp_path):
    file = original(tmp_path) / "queries" / "level_1.json"
    file.write_text(file.read_text().replace(CAT, "Disk MCP::dog"))
    with pytest.raises(ValueError, match=r"query 'l1_7' name unknown tools \['Disk MCP::dog'\]"):
        load("etom", tmp_path)


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"'etom' needs path=: .*github\.com/snooow1029/ETOM"):
        load("etom")
    with pytest.raises(FileNotFoundError, match=r"mcp_registry\.json does not exist; expected"):
        load("etom", tmp_path)
    original(tmp_path)
    (tmp_path / "queries" / "level_2.json").write_text("[")
    with pytest.raises(ValueError, match=r"level_2\.json, line 1: not JSON"):
        load("etom", tmp_path)


def test_the_full_data_set_has_the_published_counts(shared_data):
    folder = shared_data / "etom"
    single, plans = load("etom", folder), load("etom", folder, levels=[3, 4])
    for dataset in (single, plans):
        assert (len(dataset.tool_ids), dataset.merged_tools, dataset.merged_queries) == (2375, 0, 0)
    counts = {"level_1": 781, "level_2": 772, "level_3": 327, "level_4": 103}
    splits = [*single.split, *plans.split]
    assert {split: splits.count(split) for split in counts} == counts
    assert len(single.queries) == 1553
    several = [split for split, row in zip(single.split, single.labels, strict=True) if row[1] >= 0]
    assert several == ["level_2"] * 166
    labelled = {i for dataset in (single, plans) for i in dataset.labels.flat if i >= 0}
    assert len(labelled) == 1463
    assert max(len(row) for row in label_ids(single) + label_ids(plans)) == 22


def test_the_labels_of_the_whole_are_those_known_and_one_that_ends_in_a_blank(shared_data):
    """The conversion dropped labels that do not match a tool id exactly, blanks included."""
    folder = shared_data / "etom"
    converted = {row["id"]: row["labels"] for row in read_lines(folder / "queries.jsonl")}
    more = {}
    for levels in ([1, 2], [3, 4]):
        dataset = load("etom", folder, levels=levels)
        for query, labels in zip(dataset.query_ids, label_ids(dataset), strict=True):
            assert set(labels) >= set(converted[query])
            more[query] = set(labels) - set(converted[query])
    dropped = {query for query, labels in more.items() if labels}
    assert dropped == {"l2_641", "l2_642", "l4_5", "l4_46", "l4_53", "l4_77"}
    assert set().union(*more.values()) == {"Basic Memory::read_content"}


def test_every_tool_of_the_whole_has_a_text_and_the_levels_are_no_parts(shared_data):
    dataset = load("etom", shared_data / "etom")
    for name in ("full", "name_description", "orag_ultratool", "orag_toolret", "raw"):
        texts = [template(name)(document) for document in dataset.documents]
        assert len(set(texts)) == 2375, name
        assert not any("$schema" in text for text in texts), name
    assert sum(map(len, own_split(dataset))) == 1553
