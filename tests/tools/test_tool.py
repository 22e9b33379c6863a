"""The text of a tool: words of its name, description, and its parameters last and shortened."""

import json

import pytest

from jaxret.data.templates import template
from jaxret.tools import describe, read
from jaxret.tools.schema import TOTAL, listed, parameters, resolve
from jaxret.tools.tool import document
from jaxret.tools.words import words


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("send_invoice", "send invoice"),
        ("getHTTP2Page_v3", "get HTTP2 Page v3"),
        ("HTTPPage", "HTTP Page"),
        ("base64.encode", "base64 encode"),
        ("get2FACode", "get2 FA Code"),
        ("point2point", "point2 point"),
        ("3d_render", "3d render"),
        ("mcp__github__create-issue", "mcp github create issue"),
        ("GET /pets/{petId}", "GET pets pet Id"),
        ("zeigeÜbersicht", "zeige Übersicht"),
        ("名前を_送る", "名前を 送る"),
        ("", ""),
    ],
)
def test_names_are_split_into_words(name, split):
    assert words(name) == split


SCHEMA = {
    "$defs": {"Address": {"description": "where to", "properties": {"street": {}, "zip": {}}}},
    "type": "object",
    "properties": {
        "note": {"type": "string"},
        "customerId": {"description": "who\n pays"},
        "address": {"$ref": "#/$defs/Address"},
        "currency": {"description": "of the sum", "enum": ["EUR", "USD", None]},
        "lines": {"type": "array", "items": {"properties": {"price": {"description": "each"}}}},
    },
    "required": ["customerId"],
}


def test_a_description_is_name_description_category_and_parameters():
    tool = {
        "inputSchema": SCHEMA,
        "name": "send_invoice",
        "description": " Bills.\n",
        "server": "x",
    }
    assert describe(tool) == (
        "send_invoice",
        "Name: send invoice\nDescription: Bills.\nCategory: x\n"
        "Parameters: customer Id: who pays, note, address: where to, address street, address zip, "
        "currency: of the sum (EUR, USD), lines, lines price: each",
    )
    assert describe(read([tool])[0]) == describe(tool)
    assert describe({"name": "f"}) == ("f", "Name: f")
    with pytest.raises(ValueError, match=r"describe: a tool needs a name, got .*\['description'\]"):
        describe({"description": "x"})


def test_a_title_that_says_more_than_the_name_begins_the_description():
    titled = {"name": "inv_1", "title": "Send an invoice", "description": "Bills a customer."}
    assert read([titled])[0].description == "Send an invoice. Bills a customer."
    for title in ("Inv 1", "inv1 ", "Bills a customer"):
        assert "inv" not in read([titled | {"title": title}])[0].description


def test_the_text_is_that_of_the_full_template():
    """An index from tools and an experiment on the same file encode the same texts."""
    for tool in read([{"name": "send_invoice", "description": "Bills.", "inputSchema": SCHEMA}]):
        assert template("full")(document(tool)) == describe(tool).text.replace("\n", " ")


def test_long_lists_of_parameters_are_cut_at_a_whole_parameter():
    many = {f"option_{n}": {"description": "word " * 50} for n in range(40)}
    text = listed(parameters({"properties": many}))
    assert TOTAL / 2 < len(text) <= TOTAL
    assert text.endswith("word ..")
    assert text.count("option ") == text.count(" ..") < 10


def test_parameters_are_read_from_every_form():
    want = {"to": "who pays", "sum": ""}
    fields = {"to": {"description": "who pays"}, "sum": {"type": "number"}}
    forms = [
        {"properties": fields},
        {"type": "object", "properties": fields, "required": ["to"]},
        {"allOf": [{"properties": {"to": fields["to"]}}, {"properties": {"sum": fields["sum"]}}]},
        fields,
        {"to": "who pays", "sum": {}},
        [{"name": "to", "description": "who pays"}, {"name": "sum"}],
    ]
    for form in forms:
        assert parameters(form) == want
    assert parameters("to, sum") == {"to": "", "sum": ""}
    assert [*parameters({"properties": fields, "required": ["sum"]})] == ["sum", "to"]
    for none in ({}, None, [], "", {"type": "object"}, {"type": "object", "properties": {}}, 3):
        assert parameters(none) == {}


def test_references_are_followed_and_those_without_end_stop():
    tree = {"properties": {"left": {"$ref": "#"}, "value": {"description": "number"}}}
    found = parameters(tree)
    assert {"left", "value", "left.left", "left.value"} == {*found}
    looped = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    elsewhere = {"properties": {"a": {"$ref": "other.json#/a"}, "b": {"$ref": "#/no"}}}
    assert (parameters(looped), parameters(elsewhere)) == ({"a": ""}, {"a": "", "b": ""})
    joined = {"allOf": [{"$ref": "#"}], "properties": {"a": {}}}
    assert parameters(joined) == {"a": ""}


def test_a_reference_is_a_pointer():
    root = {"a/b": {"~": {"x y": {"description": "target", "type": "string"}}}}
    node = {"$ref": "#/a~1b/~0/x%20y", "description": "own"}
    assert resolve(node, root) == {"description": "own", "type": "string"}
    for bad, message in (
        ("other.yaml#/a", "points to another file"),
        ("#/none", "points to nothing"),
        ("#/a~1b/~0/x%20y/type", "points to nothing"),
    ):
        with pytest.raises(ValueError, match=message):
            resolve({"$ref": bad}, root)


def test_a_schema_in_a_document_comes_last_and_in_words():
    """MCP's inputSchema is neither written as JSON keys nor put before the name."""
    row = {"inputSchema": SCHEMA, "hints": "none", "description": "Bills.", "name": "send_invoice"}
    text = template("full")(row)
    assert text.startswith(
        "Name: send_invoice Description: Bills. Hints: none InputSchema: customer"
    )
    assert "properties" not in text
    assert template("full")(json.dumps(row)) == text
