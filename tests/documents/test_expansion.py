"""Document expansion against an HTTP server whose models answer well, badly or not at all."""

import json
from contextlib import contextmanager

import pytest

from jaxret.documents import Prompts, Rules, Stages, expand_documents
from jaxret.documents.expansion import (
    OURS,
    expand_question,
    read_draft,
    read_verdict,
    says_yes,
)
from jaxret.documents.tool_profile import schema
from jaxret.llm import Chat, Endpoint, Malformed, OutOfReach, Stage, Unanswered, replace_prompts
from tests.fake_llm import Reply, serving
from tests.llm.conftest import allow

PROFILE = {"function": "Does it.", "tags": ["one", "two", "three"]}
BETTER = {"function": "Does it well.", "tags": ["one", "two", "three"]}
DOCUMENTS = [{"name": f"tool {i}", "description": f"Does thing {i}."} for i in range(5)]
THREE, ONE = DOCUMENTS[:3], DOCUMENTS[:1]
BUSY = Reply("slow down", status=429, headers=(("Retry-After", "0.01"),))


def models(server, cache=None, *, patience=25, before=lambda: None, **settings):
    """Return three models of one server, selected by name."""
    settings = {"retries": 0, "timeout": 60.0, "attempts": 1} | settings

    def stage(name):
        chat = Chat(Endpoint(model=name, base_url=server.url, **settings), cache)
        return Stage(chat, patience=patience, before=before)

    return Stages(stage("writer"), stage("judge"), stage("editor"))


@contextmanager
def serve(**said):
    """Start a server with an answer per model: a text, an object, a `Reply` or a function."""

    def answer(messages, number):
        reply = said[server.requests[number]["model"]]
        reply = reply(messages) if callable(reply) else reply
        reply = json.dumps(reply) if isinstance(reply, dict) else reply
        return reply if isinstance(reply, Reply) else Reply(reply)

    with serving(answer) as server:
        yield server


def run(stages, documents=THREE, **settings):
    return expand_documents(documents, stages, Rules(), **settings)


def expanded(writer, judge="true", editor="no", *, documents=THREE, endpoint=None, **settings):
    """Return the outcomes for some answers of the models, the stages, and the server."""
    with serve(writer=writer, judge=judge, editor=editor) as server:
        stages = models(server, **(endpoint or {}))
        return run(stages, documents, **settings), stages, server


def asked(server):
    return [request["model"] for request in server.requests]


def profiles(outcomes):
    return [one.profile for one in outcomes]


def about(messages, number):
    return f"Does thing {number}." in messages[1]["content"]


@pytest.fixture(autouse=True)
def key(monkeypatch, tmp_path):
    allow(monkeypatch, tmp_path)


def test_profiles_that_keep_the_rules_and_convince_the_judge_are_accepted():
    thoughts = "<think>Should I say {this}?</think>\n```json\n" + json.dumps(PROFILE) + "\n```"
    outcomes, stages, server = expanded(thoughts, "<think>Not false.</think>True.")
    assert profiles(outcomes) == [PROFILE] * 3
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
        (PROFILE | {"tags": ["one"]}, "rules", "tags must be 3 to 5, got 1"),
        ({"tool_profile": PROFILE}, "rules", "function is missing"),
    ],
)
def test_a_rejected_answer_is_rewritten_by_another_model_given_the_reason(answer, kind, told):
    outcomes, stages, server = expanded(answer, editor=BETTER)
    assert [(one.profile, one.rounds) for one in outcomes] == [(BETTER, 1)] * 3
    assert stages.expand.problems == {kind: 3}
    again = next(r["messages"] for r in server.requests if r["model"] == "editor")
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert told in again[-1]["content"]
    assert again[:2] in [expand_question(document, Rules()) for document in THREE]


def test_prompts_of_the_user_replace_ours(tmp_path):
    """Cover every prompt: broken and overlong answers, and a judge without a verdict."""
    texts = {"expand": "$document", "refine": "$problem", "shorten": "$text"}
    texts |= {"judge": "$document $profile", "judge_again": "", "claim": "$document $claim"}
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{name}! {text}")
    mine = Prompts(**replace_prompts(OURS._asdict(), {x: tmp_path / x for x in texts}))
    poor = PROFILE | {"limitation": "word " * 50}

    def writer(messages):
        return poor if "thing 0" in messages[0]["content"] else "{"

    def editor(messages):
        return "Short." if messages[-1]["content"].startswith("shorten!") else PROFILE

    def judge(messages):
        said = {"judge!": "hm", "judge_again!": "true", "claim!": "yes"}
        return said[messages[-1]["content"].split()[0]]

    settings = {"documents": DOCUMENTS[:2], "confirm": ["limitation"], "prompts": mine}
    outcomes, _, server = expanded(writer, judge, editor, **settings)
    kinds = {r["messages"][-1]["content"].split("!")[0] for r in server.requests}
    assert kinds == set(texts)
    assert profiles(outcomes) == [PROFILE | {"limitation": "Short."}, PROFILE]


def test_each_refinement_is_given_all_earlier_attempts():
    poor = PROFILE | {"tags": ["one"]}
    [outcome], _, server = expanded(poor, editor=poor, documents=ONE, rounds=2)
    assert (outcome.problem.kind, outcome.rounds) == ("rules", 2)
    first, *again = [request["messages"] for request in server.requests]
    assert [len(messages) for messages in again] == [4, 6]
    assert again[1][:4] == again[0]
    assert again[0][:2] == first
    assert "tags must be 3 to 5, got 1" in again[1][-1]["content"]


def test_an_endpoint_that_supports_schemas_is_sent_the_schema_of_a_profile():
    *_, server = expanded(PROFILE, documents=ONE, endpoint={"format": "schema"})
    writer, judge = server.requests
    assert writer["response_format"]["json_schema"]["schema"] == schema(Rules())
    assert "response_format" not in judge


def test_a_profile_that_the_judge_refuses_is_never_accepted():
    outcomes, stages, server = expanded(PROFILE, "false", BETTER, rounds=2)
    refused = (None, "judged_false", 2)
    assert [(one.profile, one.problem.kind, one.rounds) for one in outcomes] == [refused] * 3
    assert stages.judge.problems["judged_false"] == 9
    assert asked(server).count("editor") == 6


def test_a_judge_without_a_verdict_is_asked_again_and_then_the_profile_is_rejected():
    def judge(messages):
        return "true" if len(messages) > 2 and about(messages, 1) else "It is mostly true, I think."

    outcomes, stages, server = expanded(PROFILE, judge, verdicts=2)
    assert profiles(outcomes) == [None, PROFILE, None]
    assert outcomes[0].problem.kind == "no_verdict"
    assert stages.judge.problems == {"no_verdict": 5}
    assert asked(server).count("judge") == 6
    assert "editor" not in asked(server)  # no verdict means no reason to correct the profile


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
def test_a_document_without_a_usable_answer_has_no_profile_but_a_reason(reply, kind, tmp_path):
    def writer(messages):
        return reply if about(messages, 1) else PROFILE

    timeout = 3.0 if kind == "timeout" else 60.0
    outcomes, stages, _ = expanded(writer, endpoint={"cache": tmp_path, "timeout": timeout})
    assert profiles(outcomes) == [PROFILE, None, PROFILE]
    assert outcomes[1].problem.kind == kind
    assert outcomes[1].problem.reason
    assert stages.expand.problems == {kind: 1}
    with serve(writer=PROFILE, judge="true", editor="no") as well:
        again = models(well, tmp_path)
        again.expand.chat.endpoint = stages.expand.chat.endpoint  # same address as before
        again.judge.chat.endpoint = stages.judge.chat.endpoint
        assert profiles(run(again)) == [PROFILE] * 3
    assert sorted(asked(well)) == ["judge", "writer"]  # only the failed tool is retried


def test_a_busy_server_is_asked_again_within_bounds_and_the_retries_are_counted():
    with serving(lambda messages, i: BUSY if i < 2 else Reply(json.dumps(PROFILE))) as server:
        stage = models(server, retries=2).expand
        [answer] = stage.ask([expand_question(DOCUMENTS[0], Rules())], "expand")
    assert read_draft(answer, Rules()).profile == PROFILE
    assert stage.chat.counts["retries"] == 2
    assert not stage.problems


@pytest.mark.parametrize(
    ("status", "patience", "error", "message"),
    [
        (500, 3, OutOfReach, r"4 questions in a row have no answer.*alas"),  # patience ends
        (404, 25, Unanswered, r"404.*alas"),  # a wrong model, which stops the run at once
    ],
)
def test_an_endpoint_without_hope_stops_the_run(status, patience, error, message):
    documents = [{"name": f"tool {i}"} for i in range(100)]
    with serve(writer=Reply("alas", status=status)) as server:
        with pytest.raises(error, match=message):
            run(models(server, patience=patience, concurrency=1), documents)
        assert len(server.requests) < 10


def test_a_run_that_is_stopped_anywhere_asks_nothing_twice(tmp_path):
    def writer(messages):
        return "no JSON" if about(messages, 2) else PROFILE

    def judge(messages):
        return "hm" if len(messages) == 2 else "true"

    class Stop(BaseException):
        pass

    seen, results = [], []
    with serve(writer=writer, judge=judge, editor=BETTER) as server:
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
    assert profiles(results) == [PROFILE, PROFILE, BETTER]
    questions = [json.dumps(request, sort_keys=True) for request in server.requests]
    assert len(questions) == len(set(questions)) == 3 + 1 + 3 * 2
    assert len(set(seen)) == 5


def test_equal_documents_cost_one_question_and_one_that_says_nothing_none():
    nothing = {"name": " ", "terse": "Clock."}
    [empty, *equal], _, server = expanded(PROFILE, documents=[nothing, *ONE * 4])
    assert empty.problem.kind == "unreadable"
    assert profiles(equal) == [PROFILE] * 4
    assert sorted(asked(server)) == ["judge", "writer"]


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
    with serve(writer="no JSON", judge="true") as server:
        outcomes = run(models(server)._replace(refine=None), rounds=0)
    assert [one.problem.kind for one in outcomes] == ["bad_json"] * 3


LONG = " ".join(f"word{i}" for i in range(24))
STILL = " ".join(["still"] * 30)


def shortening(*answers):
    """Return an editor that receives sentences to shorten and replies with the given answers."""
    left = list(answers)

    def answer(messages):
        assert len(messages) == 1, "neither the question nor the draft is shown"
        assert "about" not in messages[0]["content"]
        assert "word0 word1" in messages[0]["content"] or "still" in messages[0]["content"]
        return left.pop(0)

    return answer


def test_a_text_that_is_too_long_is_asked_for_alone():
    profile = PROFILE | {"function": LONG, "when_to_use": "Often."}
    editor = shortening('"Does it in few words."')
    [outcome], _, server = expanded(profile, editor=editor, documents=ONE)
    assert outcome.profile == profile | {"function": "Does it in few words."}
    assert (outcome.problem, outcome.rounds) == (None, 1)
    assert asked(server) == ["writer", "editor", "judge"]


def test_two_long_texts_are_two_questions_and_one_that_stays_long_is_asked_for_again():
    profile = PROFILE | {"function": LONG, "when_to_use": LONG.replace("word23", "end")}
    editor = shortening(STILL, "When it is time.", "Does it.")
    options = {"documents": ONE, "endpoint": {"concurrency": 1}}
    [outcome], stages, _ = expanded(profile, editor=editor, **options)
    assert outcome.profile == PROFILE | {"function": "Does it.", "when_to_use": "When it is time."}
    assert outcome.rounds == 2
    assert stages.refine.problems == {"rules": 1}


def test_a_text_that_stays_too_long_leaves_the_tool_without_a_profile():
    long = PROFILE | {"function": LONG}
    [outcome], *_ = expanded(long, editor=shortening(STILL, STILL), documents=ONE)
    assert (outcome.profile, outcome.problem.kind) == (None, "rules")
    assert "function must have at most 19 words, got 30" in outcome.problem.reason


def test_a_draft_with_other_errors_besides_length_is_rewritten_whole():
    def editor(messages):
        assert len(messages) == 4  # the question, the draft and its problems
        return BETTER

    long = PROFILE | {"function": LONG, "tags": ["one"]}
    [outcome], *_ = expanded(long, editor=editor, documents=ONE)
    assert outcome.profile == BETTER


def test_long_and_broken_drafts_are_mended_side_by_side_each_in_its_own_place():
    """Of five drafts, numbers 0 and 3 are too long, and 1 and 4 are broken."""

    def number(messages):
        text = " ".join(message["content"] for message in messages)
        return next(i for i in range(5) if f"Does thing {i}." in text)

    def writer(messages):
        i = number(messages)
        if i in (0, 3):
            return PROFILE | {"function": f"Does thing {i}. {LONG}"}
        return PROFILE if i == 2 else "{"

    def editor(messages):
        said = f"Mended {number(messages)}."
        return said if len(messages) == 1 else PROFILE | {"function": said}

    outcomes, *_ = expanded(writer, editor=editor, documents=DOCUMENTS)
    functions = [x.profile["function"] for x in outcomes]
    assert functions == ["Mended 0.", "Mended 1.", "Does it.", "Mended 3.", "Mended 4."]
    assert [x.rounds for x in outcomes] == [1, 1, 0, 1, 1]


# Sentences from a real model's profiles: the documentation supports only the first.
STATED = "Nothing is transmitted to the customer."
INVENTED = "The tool does not support real-time data or external data sources."


def claiming(messages):
    limit = INVENTED if "thing 1" in messages[1]["content"] else STATED
    return PROFILE | {"when_to_use": "Somebody wants it done.", "limitation": limit}


def doubting(messages):
    if "Somebody claims" not in messages[-1]["content"]:
        return "true"
    return "No." if INVENTED in messages[-1]["content"] else "Yes"


def test_limitations_that_the_judge_does_not_confirm_are_left_out():
    outcomes, stages, server = expanded(claiming, doubting, confirm=["limitation"])
    found = [one.profile.get("limitation") for one in outcomes]
    assert found == [STATED, None, STATED]
    assert all(one.problem is None and "when_to_use" in one.profile for one in outcomes)
    assert stages.judge.problems == {"unconfirmed": 1}
    about = [r["messages"][-1]["content"] for r in server.requests if r["model"] == "judge"]
    assert sum("Somebody claims" in text for text in about) == 3
    assert sum("Does thing 1." in text and INVENTED in text for text in about) == 2


def test_without_the_option_or_without_the_field_nothing_more_is_asked():
    outcomes, _, server = expanded(claiming, doubting)
    assert [one.profile["limitation"] for one in outcomes] == [STATED, INVENTED, STATED]
    assert len(server.requests) == 6
    outcomes, _, server = expanded(PROFILE, doubting, confirm=["limitation"])
    assert profiles(outcomes) == [PROFILE] * 3
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"confirm": ["function"]}, "confirm must be some of when_to_use, limitation"),
        ({"rounds": -1}, "rounds must be >= 0, got -1"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_asked(setting, message):
    with serve(writer=claiming, judge=doubting, editor="no") as server:
        with pytest.raises(ValueError, match=message):
            run(models(server), **setting)
        assert not server.requests


def test_only_a_plain_yes_confirms():
    for answer in ("Yes", "<think>no, it is there</think>\nyes."):
        assert says_yes(answer) is True, answer
    for answer in ("No.", "Yes and no", "It depends", ""):
        assert says_yes(answer) is False, answer


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("true", True),
        (" False.\n", False),
        ("**True**", True),
        ("It says what, not when.\n\nfalse", False),
        ("Both hold, so the answer is true.", True),
        ("Final verdict: `false`", False),
        ("<think>true? no, false.</think>\ntrue", True),
        ("", None),
        ("yes", None),
        ("true or false", None),
        ("The answer is not true", None),
        ("answer: false, or rather answer: true", None),
        ("false\nbut one could argue", None),
        ("<think>it is true", None),
        ("untrue", None),
        ("That the answer is clear is hardly true", None),
    ],
)
def test_only_a_clear_verdict_is_read_and_any_other_is_malformed(answer, verdict):
    if verdict is None:
        with pytest.raises(Malformed, match="ends neither in true nor in false"):
            read_verdict(answer)
    else:
        assert read_verdict(answer) is verdict
