"""Lists of tools as data sets, alone and with queries."""

import json

import numpy as np
import pytest

import jaxret as jr
from jaxret.data import load
from tests.data.folders import label_ids, write_lines

SCHEMA = {"type": "object", "properties": {"to": {"description": "who pays"}}}
TOOLS = [
    {"name": "send_invoice", "description": "Bills a customer.", "inputSchema": SCHEMA},
    {"name": "rentCar", "description": "Rents a car."},
]
QUERIES = [
    {"id": "q1", "query": "bill them", "labels": ["send_invoice"]},
    {"id": "q2", "query": "drive and bill", "labels": ["rentCar", "send_invoice"]},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"tools": TOOLS}), encoding="utf-8")
    return path


def test_a_list_alone_is_a_catalogue(file):
    task = jr.load_task("tools", file, encoder=lambda texts: np.eye(2)[: len(texts)])
    assert repr(task) == "<mine: 2 tools, no queries, width 2>"
    assert task.ids == ("send_invoice", "rentCar")
    assert task.documents == (
        "Name: send invoice Description: Bills a customer. Parameters: to: who pays",
        "Name: rent Car Description: Rents a car.",
    )
    assert (task.texts, task.queries.shape, task.prior) == ((), (0, 2), None)
    short = jr.load_task("tools", file, encoder=None, document="name_description")
    assert short.documents == ("send invoice: Bills a customer.", "rent Car: Rents a car.")
    with pytest.raises(ValueError, match="mine has no queries"):
        task.split((0.5, 0.5))


TABLE = 'query,labels,id\nbill them,send_invoice,q1\n"drive and bill",rentCar | send_invoice,q2\n'


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_queries_come_from_lines_or_a_table(file, ending):
    queries = file.with_name(f"queries.{ending}")
    if ending == "csv":
        queries.write_text(TABLE, encoding="utf-8")
    else:
        write_lines(queries, *QUERIES)
    dataset = load("tools", file, queries=queries)
    assert dataset.queries == ("bill them", "drive and bill")
    assert dataset.query_ids == ("q1", "q2")
    assert label_ids(dataset) == [["send_invoice"], ["rentCar", "send_invoice"]]
    task = jr.load_task("tools", file, queries=queries, encoder=None)
    assert len(task.select([1])) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,labels\na,b\n", r"q\.csv, line 2: columns \['query'\] are missing"),
        ("query,labels\na,nobody\n", r"labels of query '0' name unknown tools \['nobody'\]"),
        ("query,labels\na,\n", "query '0' has no labels"),
        ("query,labels\n ,rentCar\n", r"q\.csv, line 2: the text of query '0' must be a string"),
        ("query,labels\n", "mine has no queries"),
    ],
)
def test_wrong_queries_are_refused(file, text, message):
    queries = file.with_name("q.csv")
    queries.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load("tools", file, queries=queries)


def test_options_reach_the_reader(file):
    table = file.with_name("t.csv")
    table.write_text("Werkzeug,category\nf,A\n", encoding="utf-8")
    columns = {"name": "Werkzeug"}
    assert load("tools", table, columns=columns, prefix="always").tool_ids == ("A.f",)
    assert load("tools", table, columns=columns).documents == ({"name": "f", "category": "A"},)
    queries = file.with_name("queries.jsonl")
    write_lines(queries, QUERIES[0] | {"labels": ["rentCar", "x"]})
    assert label_ids(load("tools", file, queries=queries, unknown="drop")) == [["rentCar"]]
    with pytest.raises(ValueError, match=r"data set 'tools' needs path=: .* MCP's tools/list"):
        load("tools")
    with pytest.raises(ValueError, match=r"'tools' has no option 'bank'; it has queries, columns"):
        load("tools", file, bank="numpy")
