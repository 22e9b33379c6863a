"""The rules of a tool profile, and the expanded document."""

import pytest

from jaxret import data
from jaxret.data.templates import template
from jaxret.documents.tool_profile import FIELDS, Rules, expand, schema, tidy, violations

GOOD = {
    "function": "Says what time it is.",
    "tags": ["clock", "hour", "time zone"],
    "when_to_use": "Somebody wants the hour.",
    "limitation": "No dates.",
    "example_usage": [{"query": "What time is it in Köln?", "api_call": "say_time(zone='CET')"}],
}
DOCUMENT = {"name": "say_time", "description": "Tells the time.", "terse": "Clock."}


def wrong(**fields):
    return violations(GOOD | fields, Rules())


def test_a_profile_needs_no_more_than_a_function_and_tags():
    assert violations(GOOD, Rules()) == []
    assert violations({key: GOOD[key] for key in ("function", "tags")}, Rules()) == []


def test_the_profiles_of_deskbank_keep_the_rules():
    bank = data.load("deskbank")
    assert [violations(tidy(one["tool_profile"]), Rules()) for one in bank.documents] == [[]] * 168


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"function": 3}, "function must be a text, got 3"),
        ({"function": ""}, "function says nothing ('')"),
        ({"function": "a " * 20}, "function must have at most 19 words, got 20"),
        ({"when_to_use": "a " * 20}, "when_to_use must have at most 19 words, got 20"),
        ({"limitation": "N/A."}, "limitation says nothing ('N/A.')"),
        ({"limitation": "a " * 40}, "limitation must have at most 39 words, got 40"),
        ({"limitation": "\ud800"}, "limitation is not valid Unicode"),
        ({"tags": "clock"}, "tags must be a list of texts, got 'clock'"),
        ({"tags": ["a", "b"]}, "tags must be 3 to 5, got 2"),
        ({"tags": list("abcdef")}, "tags must be 3 to 5, got 6"),
        ({"tags": ["a", "b", None]}, "tags[2] must be a text, got None"),
        ({"tags": ["a", "b", "a b c d e f"]}, "tags[2] must have at most 5 words, got 6"),
        ({"tags": ["a", "b", "a"]}, "tags has 'a' more than once"),
        ({"example_usage": {}}, "example_usage must be a list, got {}"),
        ({"example_usage": []}, "example_usage must be 1 to 2, or left out; got 0"),
        ({"example_usage": ["now?"]}, "example_usage[0] must have query and api_call alone"),
        (
            {"example_usage": [{"query": "now?", "api_call": ""}]},
            "example_usage[0].api_call says nothing",
        ),
        (
            {"limitations": "None today."},
            "limitations is not a field of a profile; these are: funct",
        ),
    ],
)
def test_a_violation_gives_one_message_that_says_what_and_where(fields, message):
    [found] = wrong(**fields)
    assert found.startswith(message)


def test_all_violations_are_named_at_once():
    found = violations({"tags": ["a"], "when_to_use": 7}, Rules())
    when, tags = "when_to_use must be a text, got 7", "tags must be 3 to 5, got 1"
    assert found == ["function is missing", when, tags]
    assert violations([GOOD], Rules())[0].startswith("the profile must be a JSON object, got [{")


def test_bounds_are_those_of_the_rules():
    assert violations(GOOD, Rules(tags_least=1, tags_most=2)) == ["tags must be 1 to 2, got 3"]
    assert violations(GOOD, Rules(text_words=5)) == [
        "function must have at most 4 words, got 5: say it in about 2"
    ]


def test_blanks_capitals_nulls_and_repetitions_are_put_right_without_a_question():
    answer = {"function": " Tells the time. ", "tags": ["CET ", "Clock", "clock"]}
    tidied = {"function": "Tells the time.", "tags": ["cet", "clock"]}
    assert tidy(answer | {"limitation": None}) == tidied


def test_a_call_that_came_as_an_object_is_written_as_text():
    example = {"query": "what time is it?", "api_call": {"zone": "CET"}}
    found = tidy(GOOD | {"example_usage": [example, "say_time()"]})["example_usage"]
    assert found == [example | {"api_call": '{"zone": "CET"}'}, "say_time()"]


@pytest.mark.parametrize(
    ("limitation", "kept"),
    [
        ("The documentation does not specify any restrictions.", False),  # by Qwen2.5-Coder-1.5B
        ("The tool does not specify any restrictions.", False),  # in a third of the terse documents
        ("The tool does not list any file above the limit.", True),
        ("No specific limitations are mentioned.", False),
        ("There are no known restrictions", False),
        ("Restrictions are not stated.", False),
        ("Not specified in the documentation.", False),
        ("Accounts in the name of other parties are rejected.", True),
        ("No card can be suspended twice.", True),
        ("Does not specify a currency.", True),
    ],
)
def test_a_sentence_about_what_the_documentation_lacks_is_left_out(limitation, kept):
    assert ("limitation" in tidy(GOOD | {"limitation": limitation})) is kept


def test_the_schema_has_the_fields_and_the_bounds_of_the_rules():
    form = schema(Rules(tags_least=2, tags_most=7, examples=4))
    assert list(form["properties"]) == list(FIELDS)
    assert form["required"] == ["function", "tags"]
    assert form["additionalProperties"] is False
    tags, examples = form["properties"]["tags"], form["properties"]["example_usage"]
    assert (tags["minItems"], tags["maxItems"]) == (2, 7)
    assert (examples["minItems"], examples["maxItems"]) == (1, 4)
    assert examples["items"]["required"] == ["query", "api_call"]


def test_the_expanded_text_is_the_original_and_the_profile_without_its_examples():
    document = expand(DOCUMENT | {"tool_profile": {"function": "old"}}, GOOD)
    assert document["tool_profile"]["example_usage"] == GOOD["example_usage"]
    assert template("expanded")(document) == (
        "Name: say_time Description: Tells the time. Function: Says what time it is. "
        "Tags: clock, hour, time zone When to use: Somebody wants the hour. Limitation: No dates."
    )


def test_running_text_is_the_same_text_before_and_after_and_an_empty_profile_adds_nothing():
    text = "Tells the time."
    document = expand(text, GOOD)
    assert template("full")(document) == template("full")(text) == text
    assert template("expanded")(document).startswith("Tells the time. Function: Says")
    assert template("expanded")(expand(DOCUMENT, {})) == template("full")(DOCUMENT)
