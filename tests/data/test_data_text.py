import json

import pytest

from jaxret.data.text import RECIPES, normalise, query_text, recipe

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
    },
}
DOCUMENTED = {key: DOCUMENT[key] for key in ("name", "description", "arguments", "results")}
AS_JSON = json.dumps(DOCUMENTED)
AS_PYTHON = str({**DOCUMENTED, "open": None})  # single quotes and None: not JSON


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
    ],
)
def test_a_recipe_gives_the_text_written_down_here(name, text):
    assert recipe(name)(DOCUMENT) == text


@pytest.mark.parametrize("stored", [AS_JSON, AS_PYTHON], ids=["json", "python"])
@pytest.mark.parametrize("name", ["orag_ultratool", "orag_toolret", "name_description", "full"])
def test_fields_inside_a_string_are_read(name, stored):
    assert recipe(name)(stored) == recipe(name)(DOCUMENTED)
    assert recipe(name)({"name": "say_time", "documentation": stored}) == recipe(name)(DOCUMENTED)


@pytest.mark.parametrize("stored", ["Tells the time.", "{broken: 'x'", "['a list']", r"{'\d': }"])
def test_a_string_without_fields_is_its_own_text(stored):
    for name in ("orag_toolret", "raw", "name_description", "full"):
        assert recipe(name)(stored) == stored


def test_running_text_beside_a_name_is_kept_whole():
    document = {"name": "clock", "documentation": "Tells the time."}
    assert recipe("orag_toolret")(document) == "Tells the time."
    assert recipe("raw")(document) == "Tells the time."
    assert recipe("name_description")(document) == "clock: Tells the time."
    assert recipe("full")(document) == "Name: clock Documentation: Tells the time."


def test_toolret_code_fields_come_in_the_order_of_the_paper():
    document = {
        "functionality": "Depth estimation",
        "func_description": "Runs a model.",
        "description": "",
        "name": "midas",
        "api_call": "load()",
    }
    assert recipe("orag_toolret")(document) == "midas Runs a model. Depth estimation"


def test_without_a_describing_field_toolret_falls_back_to_the_raw_string():
    stored = '{"api_call": "load()", "name": "midas"}'
    assert recipe("orag_toolret")(stored) == stored


def test_raw_is_the_string_itself_and_one_json_object_for_fields():
    assert recipe("raw")(AS_PYTHON) == AS_PYTHON
    assert json.loads(recipe("raw")(DOCUMENT)) == DOCUMENT


def test_empty_fields_are_left_out_and_zero_is_not_empty():
    document = {"name": "x", "description": "", "arguments": {}, "results": [], "count": 0}
    assert recipe("orag_ultratool")(document) == "Name: x"
    assert recipe("full")(document) == "Name: x Count: 0"


def test_the_bad_document_is_its_functionality_alone():
    document = {"name": "slow_r50", "functionality": "3D ResNet", "description": "Classifies."}
    assert recipe("functionality")(document) == "3D ResNet"


@pytest.mark.parametrize("missing", ["terse", "functionality", "tool_profile"])
def test_a_missing_field_names_the_document_and_the_recipes_that_work(missing):
    name = {"tool_profile": "expanded"}.get(missing, missing)
    message = f"document 'say_time' has no '{missing}'.*recipes that work without: .*full"
    with pytest.raises(ValueError, match=message):
        recipe(name)(DOCUMENTED)


def test_a_document_that_gives_no_text_is_refused():
    with pytest.raises(ValueError, match=r"finds no text in document \{'name': ' '\}"):
        recipe("full")({"name": " "})


def test_an_unknown_recipe_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown recipe 'fully'; known: orag_ultratool, .*full"):
        recipe("fully")


def test_normalisation_strips_joins_lines_and_cuts():
    assert normalise(" a\nb\r\nc \n") == "a b c"
    assert len(normalise("x" * 9000)) == 8192
    assert all(len(render("word " * 9000)) <= 8192 for render in (RECIPES["raw"], RECIPES["full"]))


def test_an_instruction_stands_above_its_query():
    assert query_text("Find a tool.", "time?") == "Find a tool.\ntime?"
    assert query_text(None, "time?") == query_text("", "time?") == "time?"
