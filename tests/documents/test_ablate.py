import pytest

from jaxret import data
from jaxret.data.templates import PROFILE_FIELDS, template, with_profile
from jaxret.documents import ablate

DOCUMENT = {
    "name": "pay",
    "description": "Sends money.",
    "terse": "Payment entity.",
    "tool_profile": {
        "function": "Pays.",
        "tags": ["money", "debt"],
        "when_to_use": "",
        "example_usage": [{"query": "pay Ann", "api_call": "pay('Ann')"}],
    },
}


def test_fields_are_added_in_the_order_given_and_empty_ones_are_not():
    text = with_profile(("tags", "when_to_use", "function"))(DOCUMENT)
    assert text == "Name: pay Description: Sends money. Tags: money, debt Function: Pays."
    assert with_profile(())(DOCUMENT) == template("full")(DOCUMENT)
    shown = with_profile(("example_usage",), base=template("terse"))(DOCUMENT)
    assert shown == "pay: Payment entity. Example usage: query: pay Ann, api_call: pay('Ann')"


def test_all_four_fields_are_the_template_expanded():
    for document in data.load("deskbank").documents[:20]:
        assert with_profile(PROFILE_FIELDS)(document) == template("expanded")(document)


def test_only_fields_that_a_document_has_are_ablated():
    assert ablate.present([DOCUMENT]) == ("function", "tags", "example_usage")
    assert ablate.present(data.load("deskbank").documents, ("tags", "example_usage")) == ("tags",)
    with pytest.raises(ValueError, match=r"fields: unknown \['tag'\]; known: function"):
        ablate.present([DOCUMENT], ("tag",))
    with pytest.raises(ValueError, match="no document has a tool_profile with one of function"):
        ablate.present([{"name": "pay"}])


def test_each_protocol_changes_one_field():
    assert ablate.variants(("a", "b", "c")) == {
        "original": (),
        "full": ("a", "b", "c"),
        "add/a": ("a",),
        "add/b": ("b",),
        "add/c": ("c",),
        "out/a": ("b", "c"),
        "out/b": ("a", "c"),
        "out/c": ("a", "b"),
    }
    gains = ablate.gains(("a", "b"))
    assert gains["add/a"] == ("add/a", "original")
    assert gains["out/b"] == ("full", "out/b")
