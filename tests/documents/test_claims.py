"""Single fields that a judge is asked about alone: kept by a yes, left out otherwise."""

import json

import pytest

from jaxret.documents import claims
from tests.documents.writers import DOCUMENTS, PROFILE, models, run, serve

# Of a real model's profiles: the documentation says the first, and nothing of the second.
STATED = "Nothing is transmitted to the customer."
INVENTED = "The tool does not support real-time data or external data sources."


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")


def writer(messages):
    limit = INVENTED if "thing 1" in messages[1]["content"] else STATED
    when = "Somebody wants it done."
    return json.dumps(PROFILE | {"when_to_use": when, "limitation": limit})


def judge(messages):
    if "Somebody claims" not in messages[-1]["content"]:
        return "true"
    return "No." if INVENTED in messages[-1]["content"] else "Yes"


def test_what_the_judge_does_not_confirm_is_left_out():
    with serve(writer=writer, judge=judge, editor="no") as server:
        stages = models(server)
        outcomes = run(stages, confirm=["limitation"])
    found = [one.profile.get("limitation") for one in outcomes]
    assert found == [STATED, None, STATED]
    assert all(one.problem is None and "when_to_use" in one.profile for one in outcomes)
    assert stages.judge.problems == {"unconfirmed": 1}
    about = [r["messages"][-1]["content"] for r in server.requests if r["model"] == "judge"]
    assert sum("Somebody claims" in text for text in about) == 3
    assert sum("Does thing 1." in text and INVENTED in text for text in about) == 2


def test_without_the_option_nothing_more_is_asked():
    with serve(writer=writer, judge=judge, editor="no") as server:
        outcomes = run(models(server))
    assert [one.profile["limitation"] for one in outcomes] == [STATED, INVENTED, STATED]
    assert len(server.requests) == 6


def test_a_profile_without_the_field_costs_no_question():
    with serve(writer=json.dumps(PROFILE), judge=judge, editor="no") as server:
        outcomes = run(models(server), confirm=["limitation"])
    assert [one.profile for one in outcomes] == [PROFILE] * 3
    assert len(server.requests) == 6


def test_fields_that_cannot_be_left_out_are_refused():
    with serve(writer=writer, judge=judge, editor="no") as server:
        with pytest.raises(ValueError, match="confirm must be some of when_to_use, limitation"):
            run(models(server), confirm=["function"])
        assert not server.requests


@pytest.mark.parametrize(
    ("answer", "yes"),
    [
        ("Yes", True),
        ("<think>no, it is there</think>\nyes.", True),
        ("No.", False),
        ("Yes and no", False),
        ("It depends", False),
        ("", False),
    ],
)
def test_only_a_plain_yes_confirms(answer, yes):
    assert claims.says_yes(answer) is yes


def test_a_question_holds_the_documentation_and_the_claim():
    [message] = claims.question(DOCUMENTS[0], STATED)
    assert "Does thing 0." in message["content"]
    assert message["content"].index(STATED) > message["content"].index("Does thing 0.")
