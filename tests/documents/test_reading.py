import json

import pytest

from jaxret import data
from jaxret.documents.reading import is_empty, original, profile, read

FIELDS = {"name": "say_time", "description": "Tells the time.", "parameters": {"zone": None}}
TOOLLENS = (
    "category_name:Food, tool_name:Recipes, api_name:Suggest, api_description:Suggests, with "
    'care., required_params: [{"name": "q"}], optional_params: [], return_schema: {"a": "str"}'
)


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("object", FIELDS),
        ("json", json.dumps(FIELDS)),
        ("python", str(FIELDS)),
        ("json", {"documentation": json.dumps(FIELDS)}),
        ("python", {"name": "say_time", "documentation": f"  {FIELDS}\n"}),
        ("object", {"documentation": FIELDS}),
    ],
)
def test_every_form_of_a_document_gives_its_fields_and_says_which_it_was(kind, document):
    assert read(document) == (kind, FIELDS)


@pytest.mark.parametrize("wrap", [dict, json.dumps, str])
def test_the_wrapping_of_openai_is_opened(wrap):
    found = read(wrap({"type": "function", "function": FIELDS}))
    assert found.fields == {"type": "function"} | FIELDS
    said = {"function": "Says the time.", "tags": ["clock"]}  # a text of that name is a field
    assert read(said).fields == said


def test_running_text_of_labels_is_read_label_by_label():
    kind, fields = read({"name": "Recipes: Suggest", "documentation": TOOLLENS})
    assert kind == "labelled"
    assert fields == {
        "name": "Recipes: Suggest",
        "category_name": "Food",
        "tool_name": "Recipes",
        "api_name": "Suggest",
        "api_description": "Suggests, with care.",
        "required_params": [{"name": "q"}],
        "optional_params": [],
        "return_schema": {"a": "str"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "Tells the time.",
        "Give tool_name:x, api_name:y to it.",  # does not begin with a label
        "category_name:Food is one label only",
        "api_name:x, tool_name:y",  # in another order than ToolLens
        "category_name:a, tool_name:b, tool_name:c",
        '["a", "list"]',
    ],
)
def test_other_text_stays_text(text):
    assert read(text) == ("text", {"documentation": text})


@pytest.mark.parametrize(
    "text", ['{"name": "cut", "descr', "{placeholder} is replaced", "{'name': open('x')}"]
)
def test_text_that_begins_like_an_object_and_is_none_is_told_apart(text):
    assert read(text) == ("broken", {"documentation": text})


@pytest.mark.parametrize(
    "document", [None, "", " \n", {}, "{}", {"documentation": ""}, {"name": None, "inputs": [{}]}]
)
def test_a_document_that_holds_nothing_is_refused(document):
    with pytest.raises(ValueError, match="a document must hold something, got"):
        read(document)


@pytest.mark.parametrize("document", [3, ["name"], b"{}"])
def test_other_types_are_refused(document):
    with pytest.raises(TypeError, match="must be a dict or a string"):
        read(document)


def test_false_and_zero_say_something():
    assert not is_empty({"is_transactional": False})
    assert not is_empty([[], 0])
    assert is_empty({"a": [{"b": " "}], "c": ()})


def test_the_profile_and_the_terse_line_are_not_of_the_original():
    added = {"terse": "Clock.", "tool_profile": {"function": "Says the time."}}
    for document in (FIELDS | added, str(FIELDS | added), {"documentation": str(FIELDS)} | added):
        assert original(document) == FIELDS
        assert profile(document) == {"function": "Says the time."}
    assert profile(FIELDS) == profile(FIELDS | {"tool_profile": None}) == {}
    with pytest.raises(TypeError, match="tool_profile must be an object, got 'text'"):
        profile({"tool_profile": "text"})


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("toollens", {"labelled"}),
        ("apibench-torchhub", {"object"}),
        ("bfcl-v4-nonlive", {"object"}),
    ],
)
def test_documents_of_benchmarks_are_read_in_their_form(shared_data, name, kinds):
    dataset = data.load("jsonl", shared_data / name)
    assert {read(document).kind for document in dataset.documents} == kinds
