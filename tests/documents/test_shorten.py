"""Texts of a profile that are too long, against an editor that sees each alone."""

import json

import pytest

from tests.documents.writers import BETTER, DOCUMENTS, PROFILE, asked, models, run, serve


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")


LONG = " ".join(f"word{i}" for i in range(24))


def shortening(*answers):
    """An editor that gets sentences to shorten, and gives one answer after the other."""
    left = list(answers)

    def answer(messages):
        assert len(messages) == 1, "neither the question nor the draft is shown"
        assert "about" not in messages[0]["content"]
        assert "word0 word1" in messages[0]["content"] or "still" in messages[0]["content"]
        return left.pop(0)

    return answer


def test_a_text_that_is_too_long_is_asked_for_alone():
    profile = PROFILE | {"function": LONG, "when_to_use": "Often."}
    with serve(
        writer=json.dumps(profile), judge="true", editor=shortening('"Does it in few words."')
    ) as server:
        [outcome] = run(models(server), DOCUMENTS[:1])
    assert outcome.profile == profile | {"function": "Does it in few words."}
    assert (outcome.problem, outcome.rounds) == (None, 1)
    assert asked(server) == ["writer", "editor", "judge"]


def test_two_long_texts_are_two_questions_and_one_that_stays_long_is_asked_for_again():
    profile = PROFILE | {"function": LONG, "when_to_use": LONG.replace("word23", "end")}
    still = " ".join(["still"] * 30)
    editor = shortening(still, "When it is time.", "Does it.")
    with serve(writer=json.dumps(profile), judge="true", editor=editor) as server:
        stages = models(server, concurrency=1)
        [outcome] = run(stages, DOCUMENTS[:1])
    assert outcome.profile == PROFILE | {"function": "Does it.", "when_to_use": "When it is time."}
    assert outcome.rounds == 2
    assert stages.refine.problems == {"rules": 1}


def test_a_text_that_stays_too_long_leaves_the_tool_without_a_profile():
    profile = PROFILE | {"function": LONG}
    still = " ".join(["still"] * 30)
    with serve(writer=json.dumps(profile), judge="true", editor=shortening(still, still)) as server:
        [outcome] = run(models(server), DOCUMENTS[:1])
    assert outcome.profile is None
    assert outcome.problem.kind == "rules"
    assert "function must have at most 19 words, got 30" in outcome.problem.reason


def test_what_is_wrong_in_another_way_too_is_written_again_as_a_whole():
    profile = PROFILE | {"function": LONG, "tags": ["one"]}

    def editor(messages):
        assert len(messages) == 4  # the question, the draft, and what is wrong with it
        return json.dumps(BETTER)

    with serve(writer=json.dumps(profile), judge="true", editor=editor) as server:
        [outcome] = run(models(server), DOCUMENTS[:1])
    assert outcome.profile == BETTER


def test_long_and_broken_drafts_are_mended_side_by_side_each_in_its_own_place():
    """Of five the first and fourth are too long, the second and last broken."""
    documents = [{"name": f"tool {i}", "description": f"Does thing {i}."} for i in range(5)]

    def number(messages):
        text = " ".join(message["content"] for message in messages)
        return next(i for i in range(5) if f"Does thing {i}." in text)

    def writer(messages):
        i = number(messages)
        if i in (0, 3):
            return json.dumps(PROFILE | {"function": f"Does thing {i}. {LONG}"})
        return json.dumps(PROFILE) if i == 2 else "{"

    def editor(messages):
        said = f"Mended {number(messages)}."
        return said if len(messages) == 1 else json.dumps(PROFILE | {"function": said})

    with serve(writer=writer, judge="true", editor=editor) as server:
        outcomes = run(models(server), documents)
    functions = [x.profile["function"] for x in outcomes]
    assert functions == ["Mended 0.", "Mended 1.", "Does it.", "Mended 3.", "Mended 4."]
    assert [x.rounds for x in outcomes] == [1, 1, 0, 1, 1]
