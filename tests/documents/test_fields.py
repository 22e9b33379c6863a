from collections import Counter

import pytest

from jaxret.documents.fields import BY_NAME, GROUPS, canonical_fields, unknown_fields
from jaxret.documents.reading import original

# Table 4, written down once more from the paper: raw names of a row, and what the row is called.
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


def test_the_table_and_the_list_of_the_paper_are_here_whole():
    assert {group.table: " ".join(group.listed) for group in GROUPS.values()} == TABLE_4
    assert list(GROUPS) == LIST.split()


def test_a_raw_name_has_one_group():
    every = Counter(name for group in GROUPS.values() for name in group.listed + group.added)
    assert max(every.values()) == 1
    assert len(BY_NAME) == len(every)


def test_values_are_grouped_and_empty_ones_left_out():
    found = canonical_fields(
        {
            "name": "makepayment",
            "description": " ",
            "is_transactional": False,
            "optional_arguments": {"note": "text"},
            "additional_required_arguments": {},
            "URL": "/pay",
            "example code": ["pay()"],
        }
    )
    assert found == {
        "name": ["makepayment"],
        "description": [],
        "category": [],
        "parameters": [{"note": "text"}],
        "responses": [],
        "method": ["/pay"],
        "example_usage": [["pay()"]],
        "limitations": [False],
    }


def test_a_profile_counts_where_its_fields_belong():
    document = {
        "name": "pay",
        "tool_profile": {
            "function": "Sends money.",
            "tags": ["money"],
            "when_to_use": "For debts.",
            "limitation": "",
            "mood": "good",
        },
    }
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


def test_running_text_describes():
    assert canonical_fields("Tells the time.")["description"] == ["Tells the time."]


def test_nothing_cannot_be_grouped():
    with pytest.raises(ValueError, match="must hold something"):
        canonical_fields("")
