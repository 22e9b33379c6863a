import numpy as np
import pytest

from jaxret import data
from jaxret.documents.content import coverage, lengths
from jaxret.documents.reading import original

DOCUMENTS = (
    {"name": "a", "description": "One two.", "framework": "x"},
    "{'name': 'b', 'inputs': [], 'api_call': 'b()', 'framework': 'y', 'year': 1}",
    "Running text.",
    {"name": "d", "tool_profile": {"function": "Does it.", "tags": ["x y"]}},
)


def words(text):
    return len(text.split())


def test_shares_are_those_of_a_count_by_hand():
    found = coverage(DOCUMENTS)
    assert found.documents == 4
    assert found.kinds == {"object": 2, "python": 1, "text": 1}
    expected = {"name": 3 / 4, "description": 3 / 4, "category": 1 / 4, "method": 1 / 4}
    assert {name: share for name, share in found.share.items() if share} == expected
    assert list(found.unknown.items()) == [("framework", 2), ("year", 1)]


def test_an_empty_document_is_named_by_its_place():
    with pytest.raises(ValueError, match="document 1 of 2: a document must hold something"):
        coverage(["text", ""])
    with pytest.raises(ValueError, match="there are no documents"):
        coverage([])


def test_lengths_add_up_as_in_table_1():
    found = lengths(DOCUMENTS, words)
    # "Name: a Description: One two. Framework: x", "Running text.", "Name: d", and the profile
    # "Function: Does it. Tags: x y".
    np.testing.assert_array_equal(found.original[[0, 2, 3]], [7, 2, 2])
    np.testing.assert_array_equal(found.profile, [0, 0, 0, 6])
    np.testing.assert_array_equal(found.original + found.profile, found.expanded)


def test_every_document_of_deskbank_has_what_its_readme_says():
    documents = data.load("deskbank").documents
    bare = coverage([original(document) for document in documents]).share
    full = {name for name, share in bare.items() if share == 1}
    assert full == {"name", "description", "category", "parameters", "responses"}
    assert {name for name, share in bare.items() if share == 0} == set(bare) - full
    grown = coverage(documents).share
    assert grown["example_usage"] == grown["limitations"] == 1.0


def test_figure_1_of_what_toolbench_leaves_out(shared_data):
    documents = data.load("jsonl", shared_data / "toolbench-stable").documents
    described = sum(bool(document["api_description"].strip()) for document in documents)
    found = coverage(documents)
    assert found.share["description"] == described / len(documents) < 1
    assert found.share["method"] == 1.0
    assert not found.unknown
