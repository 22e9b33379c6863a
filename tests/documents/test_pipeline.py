"""Expansion against a real HTTP server: models that answer well, badly, and not at all."""

import json

import pytest

from jaxret.documents.questions import expand_question, read_draft
from jaxret.documents.tool_profile import Rules, schema
from jaxret.llm import OutOfReach, Price, Unanswered
from tests.documents.writers import (
    BETTER,
    BUSY,
    DOCUMENTS,
    PROFILE,
    about,
    asked,
    models,
    run,
    serve,
)
from tests.fake_llm import Reply, serving


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")


def test_profiles_that_keep_the_rules_and_convince_the_judge_are_accepted():
    thoughts = "<think>Should I say {this}?</think>\n```json\n" + json.dumps(PROFILE) + "\n```"
    with serve(writer=thoughts, judge="<think>Not false.</think>True.", editor="no") as server:
        stages = models(server)
        outcomes = run(stages)
    assert [one.profile for one in outcomes] == [PROFILE] * 3
    assert sorted(asked(server)) == ["judge"] * 3 + ["writer"] * 3
    for number in range(3):
        assert sum(about(request["messages"], number) for request in server.requests) == 2
    assert not stages.expand.problems + stages.judge.problems
    assert stages.judge.chat.counts["prompt_tokens"] == 21


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        ('{"function": "Does it.", "tags": [', "bad_json", "the JSON object is broken"),
        ("Here you are:", "bad_json", "there is no JSON object"),
        ("<think>a thought without end {}", "bad_json", "there is no JSON object"),
        ("I'm sorry, but I can't help with that.", "refusal", "it is a refusal"),
        (json.dumps(PROFILE | {"tags": ["one"]}), "rules", "tags must be 3 to 5, got 1"),
        (json.dumps({"tool_profile": PROFILE}), "rules", "function is missing"),
    ],
)
def test_a_bad_answer_is_written_again_by_another_model_that_is_told_why(answer, kind, told):
    with serve(writer=answer, judge="true", editor=json.dumps(BETTER)) as server:
        stages = models(server)
        outcomes = run(stages)
    assert [(one.profile, one.rounds) for one in outcomes] == [(BETTER, 1)] * 3
    assert stages.expand.problems == {kind: 3}
    again = next(r["messages"] for r in server.requests if r["model"] == "editor")
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert told in again[-1]["content"]
    assert again[:2] in [expand_question(document, Rules()) for document in DOCUMENTS]


def test_each_round_sees_all_that_was_tried_before():
    poor = PROFILE | {"tags": ["one"]}
    with serve(writer=json.dumps(poor), judge="true", editor=json.dumps(poor)) as server:
        [outcome] = run(models(server), DOCUMENTS[:1], rounds=2)
    assert (outcome.problem.kind, outcome.rounds) == ("rules", 2)
    first, *again = [request["messages"] for request in server.requests]
    assert [len(messages) for messages in again] == [4, 6]
    assert again[1][:4] == again[0]
    assert again[0][:2] == first
    assert "tags must be 3 to 5, got 1" in again[1][-1]["content"]


def test_an_endpoint_that_writes_by_a_schema_is_told_the_form_of_a_profile():
    with serve(writer=json.dumps(PROFILE), judge="true", editor="no") as server:
        run(models(server, format="schema"), DOCUMENTS[:1])
    writer, judge = server.requests
    form = writer["response_format"]["json_schema"]["schema"]
    assert form == schema(Rules())
    assert "response_format" not in judge


def test_a_profile_that_the_judge_refuses_is_never_accepted():
    with serve(writer=json.dumps(PROFILE), judge="false", editor=json.dumps(BETTER)) as server:
        stages = models(server)
        outcomes = run(stages, rounds=2)
    assert {(one.profile, one.problem.kind, one.rounds) for one in outcomes} == {
        (None, "judged_false", 2)
    }
    assert stages.judge.problems["judged_false"] == 9
    assert asked(server).count("editor") == 6


def test_a_judge_that_says_neither_is_asked_again_in_other_words_and_then_not_believed():
    def judge(messages):
        return "true" if len(messages) > 2 and about(messages, 1) else "It is mostly true, I think."

    with serve(writer=json.dumps(PROFILE), judge=judge, editor="no") as server:
        stages = models(server)
        outcomes = run(stages, verdicts=2)
    assert [one.profile for one in outcomes] == [None, PROFILE, None]
    assert outcomes[0].problem.kind == "no_verdict"
    assert stages.judge.problems == {"no_verdict": 5}
    assert asked(server).count("judge") == 6
    assert "editor" not in asked(server)  # nothing says that the profile is wrong


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        pytest.param(Reply("late", delay=60.0), "timeout", marks=pytest.mark.slow),
        (BUSY, "rate_limit"),
        (Reply("broken", status=500), "server_error"),
        (Reply("too long", status=400), "bad_request"),
        (Reply(body=b"<html>a gateway</html>"), "other"),
        (Reply(" "), "empty"),
    ],
)
def test_what_stays_without_an_answer_loses_one_tool_and_says_why(reply, kind, tmp_path):
    def writer(messages):
        return reply if about(messages, 1) else json.dumps(PROFILE)

    with serve(writer=writer, judge="true", editor="no") as server:
        stages = models(server, tmp_path, timeout=3.0 if kind == "timeout" else 60.0)
        outcomes = run(stages)
    assert [one.profile for one in outcomes] == [PROFILE, None, PROFILE]
    assert outcomes[1].problem.kind == kind
    assert outcomes[1].problem.reason
    assert stages.expand.problems == {kind: 1}
    with serve(writer=json.dumps(PROFILE), judge="true", editor="no") as well:
        again = models(well, tmp_path)
        again.expand.chat.endpoint = stages.expand.chat.endpoint  # the address is another one
        again.judge.chat.endpoint = stages.judge.chat.endpoint
        assert [one.profile for one in run(again)] == [PROFILE] * 3
    assert sorted(asked(well)) == ["judge", "writer"]  # for the tool that failed, and no other


def test_a_busy_server_is_asked_again_within_bounds_and_the_retries_are_counted():
    with serving(lambda messages, i: BUSY if i < 2 else Reply(json.dumps(PROFILE))) as server:
        stage = models(server, retries=2).expand
        [answer] = stage.ask([expand_question(DOCUMENTS[0], Rules())], "expand")
    assert read_draft(answer, Rules()).profile == PROFILE
    assert stage.chat.counts["retries"] == 2
    assert not stage.problems


def test_an_endpoint_that_is_gone_stops_the_run_when_patience_ends():
    documents = [{"name": f"tool {i}"} for i in range(200)]
    with serve(writer=Reply("broken", status=500), judge="true", editor="no") as server:
        with pytest.raises(OutOfReach, match=r"4 questions in a row have no answer.*broken"):
            run(models(server, patience=3, concurrency=1), documents)
        assert len(server.requests) < 10


def test_a_wrong_key_or_model_stops_the_run_at_once():
    with serve(writer=Reply("no such model", status=404), judge="", editor="") as server:
        with pytest.raises(Unanswered, match=r"404.*no such model"):
            run(models(server, concurrency=1), [{"name": f"tool {i}"} for i in range(50)])
        assert len(server.requests) < 10


def test_a_run_that_is_stopped_anywhere_asks_nothing_twice(tmp_path):
    def writer(messages):
        return "no JSON" if about(messages, 2) else json.dumps(PROFILE)

    def judge(messages):
        return "hm" if len(messages) == 2 else "true"

    class Stop(BaseException):
        pass

    seen, results = [], []
    with serve(writer=writer, judge=judge, editor=json.dumps(BETTER)) as server:
        for allowed in (0, 2, 4, 7, 8, 30):
            left = [allowed]

            def before(left=left):
                left[0] -= 1
                if left[0] < 0:
                    raise Stop

            try:
                results = run(models(server, tmp_path, before=before, concurrency=1))
                break
            except Stop:
                seen.append(len(server.requests))
    assert [one.profile for one in results] == [PROFILE, PROFILE, BETTER]
    questions = [json.dumps(request, sort_keys=True) for request in server.requests]
    assert len(questions) == len(set(questions)) == 3 + 1 + 3 * 2
    assert len(set(seen)) == 5


def test_equal_documents_cost_one_question():
    with serve(writer=json.dumps(PROFILE), judge="true", editor="no") as server:
        outcomes = run(models(server), [DOCUMENTS[0]] * 4)
    assert [one.profile for one in outcomes] == [PROFILE] * 4
    assert sorted(asked(server)) == ["judge", "writer"]


def test_a_document_that_says_nothing_is_not_asked_for():
    with serve(writer=json.dumps(PROFILE), judge="true", editor="no") as server:
        [empty, full] = run(models(server), [{"name": " ", "terse": "Clock."}, DOCUMENTS[0]])
    assert (empty.problem.kind, full.profile) == ("unreadable", PROFILE)


def test_no_model_sees_an_earlier_profile():
    document = DOCUMENTS[0] | {"tool_profile": {"function": "Old news."}, "terse": "Old too."}
    question = expand_question(document, Rules())
    assert "Old" not in json.dumps(question)
    assert question == expand_question(DOCUMENTS[0], Rules())


def test_the_prompt_states_the_bounds_that_are_checked():
    rules = Rules(text_words=17, limitation_words=33, tags_least=6, tags_most=8, examples=4)
    text = expand_question(DOCUMENTS[0], rules)[1]["content"]
    for words in ("fewer than 17 words", "6 to 8", "fewer than 33 words", "at most 4 objects"):
        assert words in text


def test_no_rounds_of_refinement_need_no_third_model():
    with serve(writer="no JSON", judge="true", editor="no") as server:
        outcomes = run(models(server)._replace(refine=None), rounds=0)
    assert [one.problem.kind for one in outcomes] == ["bad_json"] * 3
    with pytest.raises(ValueError, match=r"rounds must be >= 0, got -1"):
        run(models(server), rounds=-1)


def test_a_cost_is_that_of_both_sides_or_unknown():
    price = Price(prompt=2.0, completion=10.0)
    assert price.of(500_000, 100_000) == pytest.approx(1.0 + 1.0)
    assert Price(prompt=2.0).of(500_000, 100_000) is None
