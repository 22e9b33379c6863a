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
        (
            "full",
            "Name: say_time Description: Tells the time. "
            "Arguments: zone: type: string, note: e.g. Köln Results: time: text",
        ),
        (
            "expanded",
            "Name: say_time Description: Tells the time. "
            "Arguments: zone: type: string, note: e.g. Köln Results: time: text "
            "Function: Says what time it is. Tags: clock, hour "
            "When to use: The user wants the hour. Limitation: No dates.",
        ),
        (
            "expanded_with_examples",
            "Name: say_time Description: Tells the time. "
            "Arguments: zone: type: string, note: e.g. Köln Results: time: text "
            "Function: Says what time it is. Tags: clock, hour "
            "When to use: The user wants the hour. Limitation: No dates. "
            "Example usage: query: What time is it?, api_call: say_time('CET')",
        ),
    ],
)
def test_a_recipe_gives_the_text_written_down_here(name, text):
    assert template(name)(DOCUMENT) == text


@pytest.mark.parametrize("stored", [AS_JSON, AS_PYTHON], ids=["json", "python"])
@pytest.mark.parametrize("name", ["orag_ultratool", "orag_toolret", "name_description", "full"])
def test_fields_inside_a_string_are_read(name, stored):
    assert template(name)(stored) == template(name)(DOCUMENTED)
    assert template(name)({"name": "say_time", "documentation": stored}) == template(name)(
        DOCUMENTED
    )


@pytest.mark.parametrize("stored", ["Tells the time.", "{broken: 'x'", "['a list']", r"{'\d': }"])
def test_a_string_without_fields_is_its_own_text(stored):
    for name in ("orag_toolret", "raw", "name_description", "full"):
        assert template(name)(stored) == stored


def test_running_text_beside_a_name_is_kept_whole():
    document = {"name": "clock", "documentation": "Tells the time."}
    assert template("orag_toolret")(document) == "Tells the time."
    assert template("raw")(document) == "Tells the time."
    assert template("name_description")(document) == "clock: Tells the time."
    assert template("full")(document) == "Name: clock Documentation: Tells the time."


def test_toolret_code_fields_come_in_the_order_of_the_paper():
    document = {
        "functionality": "Depth estimation",
        "func_description": "Runs a model.",
        "description": "",
        "name": "midas",
        "api_call": "load()",
    }
    assert template("orag_toolret")(document) == "midas Runs a model. Depth estimation"


def test_without_a_describing_field_toolret_falls_back_to_the_raw_string():
    stored = '{"api_call": "load()", "name": "midas"}'
    assert template("orag_toolret")(stored) == stored


def test_raw_is_the_string_itself_and_one_json_object_for_fields():
    assert template("raw")(AS_PYTHON) == AS_PYTHON
    assert json.loads(template("raw")(DOCUMENT)) == DOCUMENT


def test_empty_fields_are_left_out_and_zero_is_not_empty():
    document = {"name": "x", "description": "", "arguments": {}, "results": [], "count": 0}
    assert template("orag_ultratool")(document) == "Name: x"
    assert template("full")(document) == "Name: x Count: 0"


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


def test_the_bad_document_is_its_functionality_alone():
    document = {"name": "slow_r50", "functionality": "3D ResNet", "description": "Classifies."}
    assert template("functionality")(document) == "3D ResNet"


@pytest.mark.parametrize("missing", ["terse", "functionality", "tool_profile"])
def test_a_missing_field_names_the_document_and_the_recipes_that_work(missing):
    name = {"tool_profile": "expanded"}.get(missing, missing)
    message = f"document 'say_time' has no '{missing}'.*templates that work without: .*full"
    with pytest.raises(ValueError, match=message):
        template(name)(DOCUMENTED)


def test_a_document_that_gives_no_text_is_refused():
    with pytest.raises(ValueError, match=r"finds no text in document \{'name': ' '\}"):
        template("full")({"name": " "})


def test_an_unknown_template_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown template 'fully'; known: orag_ultratool, .*full"
    ):
        template("fully")


def test_normalisation_strips_joins_lines_and_cuts():
    assert normalise(" a\nb\r\nc \n") == "a b c"
    assert len(normalise("x" * 9000)) == 8192
    assert all(
        len(render("word " * 9000)) <= 8192 for render in (TEMPLATES["raw"], TEMPLATES["full"])
    )


def test_an_instruction_stands_above_its_query():
    assert query_text("Find a tool.", "time?") == "Find a tool.\ntime?"
    assert query_text(None, "time?") == query_text("", "time?") == "time?"
