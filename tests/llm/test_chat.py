"""The chat client against a real HTTP server that fails in the ways that servers fail."""

import json

import pytest

from jaxret.llm import Chat, Endpoint, Malformed, Unanswered
from tests.fake_llm import Reply, serving

HELLO = [{"role": "user", "content": "hello"}]


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise Malformed(f"{text!r} is no number") from error


def chat(server, cache=None, **settings):
    settings = {"retries": 1, "timeout": 60.0} | settings
    return Chat(Endpoint(model="m", base_url=server.url, **settings), cache)


def test_a_question_is_sent_by_the_protocol_and_its_tokens_are_counted():
    with serving(lambda messages, i: Reply("12")) as server:
        one = chat(server, temperature=0.5, max_tokens=9, format="json")
        assert one.ask(HELLO, number) == 12
    assert server.keys == ["Bearer secret"]
    [request] = server.requests
    assert request["messages"] == HELLO
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("m", 0.5, 9)
    assert request["response_format"] == {"type": "json_object"}
    assert one.counts == {"asked": 1, "prompt_tokens": 7, "completion_tokens": 3}


def test_a_schema_goes_out_where_the_endpoint_writes_by_one(tmp_path):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    with serving(lambda messages, i: Reply("12")) as server:
        for format in ("text", "schema"):
            one = chat(server, tmp_path, format=format)
            assert one.ask(HELLO, number, schema=schema) == 12
            assert one.ask_all([HELLO], number, schema=schema, progress=False) == [12]
        one.ask(HELLO, number)
    plain, held = server.requests  # without a schema, both requests agree
    assert "response_format" not in plain
    assert held["response_format"]["json_schema"]["schema"] == schema


def test_probabilities_of_words_are_those_of_the_first_token(tmp_path):
    first = (("Yes", 0.5), ("no", 0.2), (" yes", 0.125), ("Maybe", 0.1))
    with serving(lambda messages, i: Reply("Yes", first=first)) as server:
        for counts in ({"asked": 1}, {"cached": 1}):
            one = chat(server, tmp_path)
            [found] = one.weigh_all([HELLO], ("yes", "no", "never"), progress=False)
            assert found == pytest.approx({"yes": 0.625, "no": 0.2, "never": 0.0})
            assert counts.items() <= one.counts.items()
    [request] = server.requests
    assert (request["max_tokens"], request["logprobs"], request["top_logprobs"]) == (1, True, 20)


@pytest.mark.parametrize(
    ("first", "said"),
    [((), "gives no probabilities"), ((("maybe", 1.0),), "none of .* is among the likeliest")],
)
def test_an_answer_without_the_probabilities_of_the_words_counts_as_none(first, said):
    with serving(lambda messages, i: Reply("maybe", first=first)) as server:
        with pytest.raises(Unanswered, match=said):
            chat(server, attempts=1).weigh(HELLO, ("yes", "no"))
        assert chat(server).weigh_all([HELLO], ("yes", "no"), progress=False) == [None]


def test_an_answer_is_kept_and_nothing_is_asked_twice(tmp_path):
    with serving(lambda messages, i: Reply("12")) as server:
        assert chat(server, tmp_path).ask(HELLO, number) == 12
        again = chat(server, tmp_path)
        assert again.ask(HELLO, number) == 12
        tokens = {"cached_prompt_tokens": 7, "cached_completion_tokens": 3}
        assert again.counts == {"cached": 1} | tokens
        again.ask([{"role": "user", "content": "bye"}], number)
        chat(server, tmp_path, temperature=1.0).ask(HELLO, number)
    assert len(server.requests) == 3


def test_an_answer_that_does_not_parse_is_requested_again_and_not_cached(tmp_path):
    with serving(lambda messages, i: Reply("12" if i == 2 else "twelve")) as server:
        asked = chat(server, tmp_path)
        assert asked.ask(HELLO, number) == 12
        assert asked.counts["malformed"] == 2
        with pytest.raises(Unanswered, match=r"no valid answer in 2 attempts: 'twelve' is no"):
            chat(server, None, attempts=2).ask(HELLO, number)
    [kept] = tmp_path.glob("*.json")
    assert json.loads(kept.read_text())["answer"] == "12"


def test_a_torn_or_outdated_file_is_asked_for_again(tmp_path):
    with serving(lambda messages, i: Reply("12")) as server:
        chat(server, tmp_path).ask(HELLO, number)
        [kept] = tmp_path.glob("*.json")
        for content in ('{"answer": ', '{"answer": "twelve"}', "{}"):
            kept.write_text(content)
            assert chat(server, tmp_path).ask(HELLO, number) == 12
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_or_broken_server_is_asked_again_after_a_pause(status):
    def answer(messages, i):
        return Reply(status=status, headers=(("Retry-After", "0.01"),)) if i == 0 else Reply("12")

    with serving(answer) as server:
        asked = chat(server)
        assert asked.ask(HELLO, number) == 12
    assert len(server.requests) == 2
    assert asked.counts["retries"] == 1


def test_a_server_that_stays_busy_is_given_up_with_its_reason():
    answer = Reply("slow down", status=429, headers=(("Retry-After", "0.01"),))
    with (
        serving(lambda messages, i: answer) as server,
        pytest.raises(Unanswered, match=r"m at http.*429.*slow down"),
    ):
        chat(server, retries=2).ask(HELLO, number)
    assert len(server.requests) == 3


def test_a_server_that_is_silent_is_given_up():
    with (
        serving(lambda messages, i: Reply("12", delay=30.0)) as server,
        pytest.raises(Unanswered, match="timed out"),
    ):
        chat(server, timeout=0.2, retries=0).ask(HELLO, number)


@pytest.mark.parametrize("body", [b"<html>a gateway</html>", b'{"choices": []}', b"{}"])
def test_a_body_that_is_no_completion_is_no_answer(body):
    with serving(lambda messages, i: Reply(body=body)) as server, pytest.raises(Unanswered):
        chat(server, attempts=2).ask(HELLO, number)


def asking(*texts):
    return [[{"role": "user", "content": text}] for text in texts]


def test_many_questions_are_asked_at_once_up_to_the_limit_and_come_back_in_order(tmp_path):
    with serving(lambda messages, i: Reply(messages[0]["content"], delay=0.2)) as server:
        asked = chat(server, tmp_path, concurrency=3)
        found = asked.ask_all(asking(*map(str, range(12))), number, progress=False)
    assert found == list(range(12))
    assert 2 <= server.most_at_once <= 3


def test_equal_questions_at_once_do_not_get_in_each_others_way(tmp_path):
    with serving(lambda messages, i: Reply("12", delay=0.05)) as server:
        for text in "abcd":
            asked = chat(server, tmp_path, concurrency=16)
            assert asked.ask_all(asking(text) * 16, number, progress=False) == [12] * 16
    assert len(list(tmp_path.iterdir())) == 4


def test_a_bad_answer_affects_no_other_question():
    with serving(lambda messages, i: Reply(messages[0]["content"])) as server:
        asked = chat(server, attempts=2)
        assert asked.ask_all(asking("1", "two", "3"), number, progress=False) == [1, None, 3]
    assert (asked.counts["unanswered"], asked.counts["malformed"]) == (1, 2)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_an_error_that_concerns_every_question_stops_all_of_them(status):
    with serving(lambda messages, i: Reply("no such model", status=status)) as server:
        with pytest.raises(Unanswered, match=f"{status}.*no such model"):
            chat(server, concurrency=2).ask_all([HELLO] * 50, number, progress=False)
        assert len(server.requests) < 50


def test_a_server_that_is_not_there_is_named():
    with serving(lambda messages, i: Reply("12")) as server:
        pass
    with pytest.raises(Unanswered, match=f"m at {server.url}: Connection error"):
        chat(server, retries=0).ask(HELLO, number)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retries": -1}, "retries must be >= 0, got -1"),
        ({"attempts": 0}, "attempts must be >= 1, got 0"),
        ({"concurrency": 0}, "concurrency must be >= 1, got 0"),
        ({"timeout": 0.0}, "timeout must be > 0 seconds, got 0.0"),
        ({"temperature": -1.0}, "temperature must be >= 0, got -1.0"),
        ({"format": "yaml"}, r"format must be one of .*, got yaml"),
        (
            {"base_url": "http://x", "key_variable": "NO_KEY"},
            "key for http://x: set the variable NO_KEY",
        ),
    ],
)
def test_settings_outside_their_range_and_missing_keys_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Chat(Endpoint(model="m", **settings))
