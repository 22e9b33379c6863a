"""Document formats, canonical fields and the rule-based audit."""

import json
from collections import Counter

import pytest

from jaxret import data
from jaxret.documents import audit
from jaxret.documents.fields import (
    BY_NAME,
    GROUPS,
    canonical_fields,
    is_empty,
    original,
    profile,
    read,
    unknown_fields,
)

CLOCK = {"name": "say_time", "description": "Tells the time.", "parameters": {"zone": None}}
TOOLLENS = (
    "category_name:Food, tool_name:Recipes, api_name:Suggest, api_description:Suggests, with "
    'care., required_params: [{"name": "q"}], optional_params: [], return_schema: {"a": "str"}'
)


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("object", CLOCK),
        ("json", json.dumps(CLOCK)),
        ("python", str(CLOCK)),
        ("json", {"documentation": json.dumps(CLOCK)}),
        ("python", {"name": "say_time", "documentation": f"  {CLOCK}\n"}),
        ("object", {"documentation": CLOCK}),
    ],
)
def test_every_form_of_a_document_gives_its_fields_and_says_which_it_was(kind, document):
    assert read(document) == (kind, CLOCK)


@pytest.mark.parametrize("wrap", [dict, json.dumps, str])
def test_the_wrapping_of_openai_is_opened(wrap):
    found = read(wrap({"type": "function", "function": CLOCK}))
    assert found.fields == {"type": "function"} | CLOCK
    said = {"function": "Says the time.", "tags": ["clock"]}  # here a field, not a wrapper
    assert read(said).fields == said


def test_running_text_of_labels_is_read_label_by_label():
    found = read({"name": "Recipes: Suggest", "documentation": TOOLLENS})
    assert found.kind == "labelled"
    assert found.fields == {
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
    ("kind", "text"),
    [
        ("text", "Tells the time."),
        ("text", "Give tool_name:x, api_name:y to it."),  # does not begin with a label
        ("text", "category_name:Food is one label only"),
        ("text", "api_name:x, tool_name:y"),  # ToolLens has the opposite order
        ("text", "category_name:a, tool_name:b, tool_name:c"),
        ("text", '["a", "list"]'),
        ("broken", '{"name": "cut", "descr'),  # only begins like an object
        ("broken", "{placeholder} is replaced"),
        ("broken", "{'name': open('x')}"),
    ],
)
def test_other_text_stays_text(kind, text):
    assert read(text) == (kind, {"documentation": text})


@pytest.mark.parametrize(
    "document", [None, "", " \n", {}, "{}", {"documentation": ""}, {"name": None, "inputs": [{}]}]
)
def test_a_document_that_holds_nothing_is_refused(document):
    for reads in (read, canonical_fields):
        with pytest.raises(ValueError, match="a document must hold something, got"):
            reads(document)


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
    for document in (CLOCK | added, str(CLOCK | added), {"documentation": str(CLOCK)} | added):
        assert original(document) == CLOCK
        assert profile(document) == {"function": "Says the time."}
    assert profile(CLOCK) == profile(CLOCK | {"tool_profile": None}) == {}
    with pytest.raises(TypeError, match="tool_profile must be an object, got 'text'"):
        profile({"tool_profile": "text"})


@pytest.mark.parametrize(
    ("name", "kind"),
    [("toollens", "labelled"), ("apibench-torchhub", "object"), ("bfcl-v4-nonlive", "object")],
)
def test_documents_of_benchmarks_are_read_in_their_form(shared_data, name, kind):
    dataset = data.load("jsonl", shared_data / name)
    assert {read(document).kind for document in dataset.documents} == {kind}


# Table 4 of the paper, copied independently: canonical name -> raw names.
TABLE_4 = {
    "name": "name name_for_human",
    "description": "description description_for_human func_description functionality",
    "tags": "category category_name domain",
    "parameters": "parameters api_arguments optional_parameters required_parameters inputs "
    "additional_required_arguments optional_arguments",
    "responses": "responses response return_data outputs result_arguments template_response output",
    "function": "method api_call url path",
    "when-to-use": "example_usage example_code",
    "limitations": "limitation is_transactional performance python_environment_requirements "
    "doc_arguments",
}
LIST = "name description category parameters responses method example_usage limitations"


def test_the_papers_table_and_list_of_fields_are_complete():
    assert {group.table: " ".join(group.listed) for group in GROUPS.values()} == TABLE_4
    assert list(GROUPS) == LIST.split()
    # A raw name has one group.
    every = Counter(name for group in GROUPS.values() for name in group.listed + group.added)
    assert max(every.values()) == 1
    assert len(BY_NAME) == len(every)


def test_values_are_grouped_and_empty_ones_left_out():
    document = {"name": "makepayment", "description": " ", "is_transactional": False}
    document |= {"optional_arguments": {"note": "text"}, "additional_required_arguments": {}}
    document |= {"URL": "/pay", "example code": ["pay()"]}
    expected = {"name": ["makepayment"], "parameters": [{"note": "text"}], "method": ["/pay"]}
    expected |= {"example_usage": [["pay()"]], "limitations": [False]}
    assert canonical_fields(document) == {name: [] for name in GROUPS} | expected
    assert canonical_fields("Tells the time.")["description"] == ["Tells the time."]


def test_a_profile_counts_where_its_fields_belong():
    profile = {"function": "Sends money.", "tags": ["money"], "when_to_use": "For debts."}
    document = {"name": "pay", "tool_profile": profile | {"limitation": "", "mood": "good"}}
    found = canonical_fields(document)
    assert found["description"] == ["Sends money."]
    assert found["category"] == [["money"]]
    assert found["example_usage"] == ["For debts."]
    assert found["limitations"] == found["method"] == []
    assert unknown_fields(document) == {"tool_profile.mood": "good"}
    assert canonical_fields(original(document))["description"] == []


def test_unknown_names_are_kept_but_not_what_is_empty():
    document = {"name": "slow_r50", "framework": "PyTorch", "license": None}
    assert unknown_fields(document) == {"framework": "PyTorch"}


PAY = {"name": "make_payment", "description": "Sends money to a friend.", "is_transactional": True}


@pytest.mark.parametrize(
    ("document", "stated", "guided"),
    [
        (PAY, True, True),
        ({"name": "make_payment", "description": "Make payment."}, False, False),
        ({"name": "make_payment", "description": "-", "example_code": "pay()"}, False, True),
        ({"name": "make_payment", "parameters": {"to": "text"}}, False, False),
        ("Sends money to a friend.", True, False),
        ({"name": "x", "tool_profile": {"function": "Pays.", "when_to_use": "Debts."}}, True, True),
    ],
)
def test_rules_look_for_a_statement_beyond_the_name_and_for_guidance(document, stated, guided):
    found = audit(document)
    assert found == (stated, guided)
    assert found.complete == (stated and guided)
