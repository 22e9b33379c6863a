import json

import pytest

from jaxret.data.templates import TEMPLATES, normalise, query_text, template

DOCUMENT = {
    "name": "say_time",
    "description": "Tells the time.",
    "arguments": {"zone": {"type": "string", "note": "e.g. Köln"}},
    "results": {"time": "text"},
    "terse": "Clock status.",
    "tool_profile": {
        "function": "Says what time it is.",
        "tags": ["clock", "hour"],
        "when_to_use": "The user wants the hour.",
        "limitation": "No dates.",
        "example_usage": [{"query": "What time is it?", "api_call": "say_time('CET')"}],
    },
}
DOCUMENTED = {key: DOCUMENT[key] for key in ("name", "description", "arguments", "results")}
AS_JSON = json.dumps(DOCUMENTED)
AS_PYTHON = str({**DOCUMENTED, "open": None})  # not JSON: single quotes and None
OTHERS = ".*templates that work without: .*full"
FULL = (
    "Name: say_time Description: Tells the time. "
    "Arguments: zone: type: string, note: e.g. Köln Results: time: text"
)
EXPANDED = (
    f"{FULL} Function: Says what time it is. Tags: clock, hour "
    "When to use: The user wants the hour. Limitation: No dates."
)
EXAMPLES = " Example usage: query: What time is it?, api_call: say_time('CET')"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "orag_ultratool",
            "Name: say_time Description: Tells the time. "
            'Arguments: {"zone": {"type": "string", "note": "e.g. Köln"}} '
            'Results: {"time": "text"}',
        ),
        ("orag_toolret", "say_time Tells the time."),
        ("name_description", "say_time: Tells the time."),
        ("terse", "say_time: Clock status."),
        ("full", FULL),
        ("expanded", EXPANDED),
        ("expanded_with_examples", EXPANDED + EXAMPLES),
    ],
)
def test_a_recipe_gives_the_text_written_down_here(name, text):
    assert template(name)(DOCUMENT) == text


@pytest.mark.parametrize("stored", [AS_JSON, AS_PYTHON], ids=["json", "python"])
@pytest.mark.parametrize("name", ["orag_ultratool", "orag_toolret", "name_description", "full"])
def test_fields_inside_a_string_are_read(name, stored):
    render = template(name)
    assert render(stored) == render(DOCUMENTED)
    assert render({"name": "say_time", "documentation": stored}) == render(DOCUMENTED)


@pytest.mark.parametrize("stored", ["Tells the time.", "{broken: 'x'", "['a list']", r"{'\d': }"])
def test_a_string_without_fields_is_its_own_text_and_raw_fields_are_one_object(stored):
    for name in ("orag_toolret", "raw", "name_description", "full"):
        assert template(name)(stored) == stored
    assert json.loads(template("raw")(DOCUMENT)) == DOCUMENT


CLOCK = {"name": "clock", "documentation": "Tells the time."}
MIDAS = {
    "functionality": "Depth estimation",
    "func_description": "Runs a model.",
    "description": "",
    "name": "midas",
    "api_call": "load()",
}
UNDESCRIBED = '{"api_call": "load()", "name": "midas"}'
EMPTY = {"name": "x", "description": "", "arguments": {}, "results": [], "count": 0}
RESNET = {"name": "slow_r50", "functionality": "3D ResNet", "description": "Classifies."}


@pytest.mark.parametrize(
    ("name", "document", "text"),
    [
        # running text beside a name is kept whole
        ("orag_toolret", CLOCK, "Tells the time."),
        ("raw", CLOCK, "Tells the time."),
        ("name_description", CLOCK, "clock: Tells the time."),
        ("full", CLOCK, "Name: clock Documentation: Tells the time."),
        # fields of code come in the order of the paper; without any, the string is the text
        ("orag_toolret", MIDAS, "midas Runs a model. Depth estimation"),
        ("orag_toolret", UNDESCRIBED, UNDESCRIBED),
        ("raw", AS_PYTHON, AS_PYTHON),
        # empty fields are left out, and zero is not empty
        ("orag_ultratool", EMPTY, "Name: x"),
        ("full", EMPTY, "Name: x Count: 0"),
        ("functionality", RESNET, "3D ResNet"),
    ],
)
def test_unusual_documents_have_these_texts(name, document, text):
    assert template(name)(document) == text


def test_sorted_fields_are_every_pair_of_the_object_in_the_order_of_the_keys():
    document = {"title": "Rates\nrise", "body": " The bank acts. ", "category": "", "Year": 2023}
    expected = "Year: 2023 body: The bank acts. category:  title: Rates rise"
    assert template("sorted_fields")(document) == expected
    assert template("sorted_fields")(json.dumps(document)) == expected
    assert template("sorted_fields")(DOCUMENT) == (
        'arguments: {"zone": {"type": "string", "note": "e.g. Köln"}} '
        'description: Tells the time. name: say_time results: {"time": "text"}'
    )
    assert template("sorted_fields")("Tells the time.") == "Tells the time."


@pytest.mark.parametrize(
    ("name", "document", "message"),
    [
        ("terse", DOCUMENTED, f"document 'say_time' has no 'terse'{OTHERS}"),
        ("functionality", DOCUMENTED, f"document 'say_time' has no 'functionality'{OTHERS}"),
        ("expanded", DOCUMENTED, f"document 'say_time' has no 'tool_profile'{OTHERS}"),
        ("full", {"name": " "}, r"finds no text in document \{'name': ' '\}"),
        ("fully", DOCUMENTED, r"unknown template 'fully'; known: orag_ultratool, .*full"),
    ],
)
def test_missing_fields_empty_texts_and_unknown_recipes_are_refused(name, document, message):
    with pytest.raises(ValueError, match=message):
        template(name)(document)


def test_normalisation_strips_joins_lines_and_cuts():
    assert normalise(" a\nb\r\nc \n") == "a b c"
    assert len(normalise("x" * 9000)) == 8192
    assert all(len(TEMPLATES[name]("word " * 9000)) <= 8192 for name in ("raw", "full"))


def test_an_instruction_stands_above_its_query():
    assert query_text("Find a tool.", "time?") == "Find a tool.\ntime?"
    assert query_text(None, "time?") == query_text("", "time?") == "time?"
