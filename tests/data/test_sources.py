"""Loaders on small folders written by the tests, and their error messages."""

import pytest

from jaxret.data import load
from tests.data.folders import label_ids, write_lines


@pytest.mark.parametrize(("part", "queries"), [("single", 2016), ("multi", 336), ("all", 2352)])
def test_deskbank_is_built_in(part, queries):
    dataset = load("deskbank", part=part)
    assert (len(dataset.tool_ids), len(dataset.queries)) == (168, queries)
    keys = ["name", "description", "parameters", "returns", "domain", "terse", "tool_profile"]
    assert list(dataset.documents[0]) == keys


def test_multi_tool_queries_of_deskbank_have_a_step_for_each_label():
    dataset = load("deskbank", part="multi")
    for steps, labels in zip(dataset.steps, dataset.labels, strict=True):
        assert [step.label for step in steps] == labels[labels >= 0].tolist()
        assert 2 <= len(steps) <= 5


def test_unknown_names_and_parts_and_a_path_of_deskbank_are_refused(tmp_path):
    with pytest.raises(ValueError, match="part must be one of single, multi, all, got 'both'"):
        load("deskbank", part="both")
    with pytest.raises(ValueError, match="built in and takes no path"):
        load("deskbank", tmp_path)
    with pytest.raises(ValueError, match=r"unknown data set 'toolbox'; known: deskbank, .*jsonl"):
        load("toolbox")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("ultratool", r"test\.json of github\.com/JoeYing1019/UltraTool"),
        ("toollens", "datasets/ToolLens of github.com/quchangle1/COLT"),
        ("bfcl", "github.com/ShishirPatil/gorilla"),
        ("beir", "corpus.jsonl, queries.jsonl and qrels"),
        ("jsonl", "tools.jsonl and queries.jsonl"),
        ("tools", "MCP's tools/list"),
    ],
)
def test_a_missing_path_says_what_is_needed_and_where_it_is(name, where, tmp_path):
    with pytest.raises(ValueError, match=f"data set '{name}' needs path=: .*{where}"):
        load(name)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist; expected there: "):
        load(name, tmp_path / "nowhere")


def test_general_layout_groups_steps_and_instructions_are_read(tmp_path):
    tools = (
        {"id": "t1", "name": "clock", "documentation": "Tells the time.", "terse": "Time."},
        {"id": "t2", "name": "record", "documentation": {"name": "own", "description": "x"}},
    )
    steps = [{"query": "s", "label": "t2"}]
    queries = (
        {"id": "1", "query": "a", "labels": ["t1"], "question_index": 4, "instruction": "Find:"},
        {"id": "2", "query": "b", "labels": ["t2"], "question_index": 5, "instruction": None},
        {"id": "3", "query": "c", "labels": ["t2", "t1"], "question_index": 4, "steps": steps},
    )
    write_lines(tmp_path / "tools.jsonl", *tools)
    write_lines(tmp_path / "queries.jsonl", *queries)
    dataset = load("jsonl", tmp_path)
    assert dataset.documents == (
        {"name": "clock", "documentation": "Tells the time.", "terse": "Time."},
        {"name": "own", "description": "x"},
    )
    assert dataset.queries == ("Find:\na", "b", "c")
    assert dataset.groups.tolist() == [0, 1, 0]
    assert dataset.steps == ((), (), (("s", 1),))


def test_distractors_come_from_files_of_their_own_and_after_the_others(tmp_path):
    write_lines(tmp_path / "tools.jsonl", {"id": "t1", "documentation": "x"})
    write_lines(tmp_path / "more.jsonl", {"id": "t0", "documentation": "y"})
    write_lines(tmp_path / "queries.jsonl", {"id": "1", "query": "a", "labels": ["t1"]})
    dataset = load("jsonl", tmp_path, extra=["more.jsonl"])
    assert dataset.tool_ids == ("t1", "t0")
    assert dataset.labels.tolist() == [[0]]
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        load("jsonl", tmp_path, extra=["none.jsonl"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "t2", ', r"tools\.jsonl, line 3: not JSON: .* at column \d+"),
        ('["t2"]', r"tools\.jsonl, line 3: expected an object"),
        ('{"id": "t2"}', r"tools\.jsonl, line 3: fields \['documentation'\] are missing"),
        ('{"id": "t2", "documentation": 3}', "documentation of tool 't2' must be an object or"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(tmp_path, line, message):
    write_lines(tmp_path / "tools.jsonl", {"id": "t1", "documentation": "x"}, "", line)
    write_lines(tmp_path / "queries.jsonl", {"id": "1", "query": "a", "labels": ["t1"]})
    with pytest.raises(ValueError, match=message):
        load("jsonl", tmp_path)


def test_ultratool_steps_without_a_call_are_no_queries(tmp_path):
    plan = [
        {"step": "1. Prepare", "tool": "null"},
        {"step": "1.1 Think", "tool": "No tool required"},
        {"step": "1.2 Write", "tool": "file_write(text='a (b)')"},
    ]
    tool = {"name": "file_write", "description": "Writes."}
    write_lines(
        tmp_path / "test.json", {"question": "Do it.\n", "plan": plan, "tools": [tool, tool]}
    )
    dataset = load("ultratool", tmp_path)
    assert dataset.queries == (
        'Given the following task:"Do it.", select the best tool provided in the context '
        'to solve the following substep:"1.2 Write".',
    )
    assert dataset.query_ids == ("ultratool_0_2",)
    assert (dataset.tool_ids, dataset.merged_tools) == (("file_write",), 1)


@pytest.fixture
def beir_folder(tmp_path):
    write_lines(
        tmp_path / "corpus.jsonl",
        {"_id": "d1", "title": "Clock", "text": "Tells the time."},
        {"_id": "d2", "text": "Sets an alarm."},
    )
    texts = {"q1": "time?", "q2": "wake me", "q3": "not judged", "q4": "judged irrelevant"}
    write_lines(
        tmp_path / "queries.jsonl", *({"_id": i, "text": text} for i, text in texts.items())
    )
    head = "query-id\tcorpus-id\tscore"
    write_lines(tmp_path / "qrels/train.tsv", head, "q1\td1\t2", "q1\td2\t0", "q4\td1\t0")
    write_lines(tmp_path / "qrels/test.tsv", head, "q2\td2\t1", "q2\td1\t1")
    return tmp_path


def test_beir_labels_are_positive_judgements_and_splits_their_files(beir_folder):
    dataset = load("beir", beir_folder)
    assert dataset.documents == ("Clock\nTells the time.", "Sets an alarm.")
    assert dataset.query_ids == ("q1", "q2")
    assert dataset.split == ("train", "test")
    assert label_ids(dataset) == [["d1"], ["d2", "d1"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 d1", r"test\.tsv, line 4: expected query, document, score, or TREC's query, 0"),
        ("q1\td1\thigh", r"test\.tsv, line 4: expected query, document, score"),
        ("q1\t0\td1\t1\tx", r"test\.tsv, line 4: expected query, document, score"),
        ("q9\td1\t1", r"judges queries \['q9'\] not in"),
        ("q1\td1\t1", r"query 'q1' is judged in test and in train"),
        ("q2\td9\t1", r"labels of query 'q2' name unknown tools \['d9'\]; known: 2 tools"),
    ],
)
def test_broken_judgements_are_refused(beir_folder, line, message):
    with (beir_folder / "qrels/test.tsv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        load("beir", beir_folder)


def function(name, about):
    return {"name": name, "description": about, "parameters": {}}


def bfcl_question(number, functions, *messages):
    turns = [{"role": role, "content": text} for role, text in messages]
    return {"id": number, "question": [turns], "function": functions}


def test_bfcl_names_with_a_second_documentation_are_numbered(tmp_path):
    one, two, other = function("area", "one"), function("area", "two"), function("len", "x")
    files = {
        "BFCL_v4_simple_python.json": [
            bfcl_question("s0", [one], ("system", "Be kind."), ("user", "How big?")),
            bfcl_question("s1", [two], ("user", "How wide?"), ("user", "In metres.")),
        ],
        "BFCL_v4_multiple.json": [bfcl_question("m0", [other, two], ("user", "How big?"))],
    }
    for name, questions in files.items():
        answers = [{"id": asked["id"], "ground_truth": [{"area": {}}]} for asked in questions]
        write_lines(tmp_path / name, *questions)
        write_lines(tmp_path / "possible_answer" / name, *answers)
    dataset = load("bfcl", tmp_path)
    assert dataset.tool_ids == ("area", "area#2", "len")
    assert dataset.documents == (one, two, other)
    assert dataset.queries == ("How big?", "How wide?\nIn metres.")
    assert label_ids(dataset) == [["area", "area#2"], ["area#2"]]
    assert (dataset.merged_tools, dataset.merged_queries) == (1, 1)
    assert dataset.split == ("simple_python", "simple_python")


def test_bfcl_answers_must_be_there_and_call_what_is_offered(tmp_path):
    file = "BFCL_v4_multiple.json"
    with pytest.raises(FileNotFoundError, match="holds none of"):
        load("bfcl", tmp_path)
    write_lines(tmp_path / file, bfcl_question("m0", [function("len", "x")], ("user", "How long?")))
    with pytest.raises(FileNotFoundError, match=r"possible_answer/BFCL_v4_multiple\.json does not"):
        load("bfcl", tmp_path)
    write_lines(tmp_path / "possible_answer" / file, {"id": "m0", "ground_truth": [{"size": {}}]})
    with pytest.raises(ValueError, match=r"answer to 'm0' calls \['size'\]; offered: \['len'\]"):
        load("bfcl", tmp_path)
    write_lines(tmp_path / "possible_answer" / file, {"id": "m1", "ground_truth": [{"len": {}}]})
    with pytest.raises(ValueError, match="has no answer to 'm0'"):
        load("bfcl", tmp_path)
