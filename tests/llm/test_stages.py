"""Pipeline stages that check answers, against a server with failures of servers and models."""

import json

import pytest

from jaxret.llm import Chat, Endpoint, OutOfReach, Price, Stage, Wrong, ask_checked
from tests.fake_llm import Reply, serving


def even(text):
    if not text.isdigit():
        raise Wrong("not_json", "it is no number")
    if int(text) % 2:
        raise Wrong("count", f"{text} is odd")
    return int(text)


def ask(server, n, cache=None, *, first=0, **settings):
    settings = {"retries": 0, "timeout": 60.0, "attempts": 1} | settings
    chat = Chat(Endpoint(model="m", base_url=server.url, **settings), cache)
    questions = [[{"role": "user", "content": f"number {first + i}"}] for i in range(n)]
    return chat, ask_checked(Stage(chat), questions, [even] * n, attempts=3, title="asking")


def number(messages):
    return int(messages[0]["content"].split()[1])


def test_a_wrong_answer_is_asked_for_again_with_the_reason_and_costs_only_itself():
    said = {0: ["4"], 1: ["seven", "7", "8"], 2: ["1", "3", "5"], 3: ["2"]}

    def answer(messages, i):
        return Reply(said[number(messages)][len(messages) // 2])

    with serving(answer) as server:
        _, found = ask(server, 4)
    assert found.values == [4, 8, None, 2]
    assert found.failures == {"not_json": 1, "count": 4, "lost": 1}
    assert len(server.requests) == 8
    last = max((r["messages"] for r in server.requests if number(r["messages"]) == 1), key=len)
    assert [m["role"] for m in last] == ["user", "assistant", "user", "assistant", "user"]
    assert last[1]["content"] == "seven"
    assert "it is no number" in last[2]["content"]
    assert "7 is odd" in last[4]["content"]


def test_neither_good_nor_bad_answers_are_paid_for_twice(tmp_path):
    def answer(messages, i):
        return Reply("1" if number(messages) == 2 else str(2 * number(messages)))

    with serving(answer) as server:
        _, first = ask(server, 4, tmp_path)
        paid = len(server.requests)
        again, second = ask(server, 4, tmp_path)
        assert len(server.requests) == paid == 6
    assert first == second
    assert again.counts["cached"] == 6


@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        ("rate_limit", Reply("slow down", status=429)),
        pytest.param("timeout", Reply("2", delay=60.0), marks=pytest.mark.slow),
        ("server_error", Reply("no", status=500)),
        ("bad_request", Reply("too long", status=400)),
        ("other", Reply(body=b"<html>")),
        ("empty", Reply("  ")),
    ],
)
def test_a_question_that_stays_unanswered_is_counted_by_its_reason(kind, reply):
    with serving(lambda messages, i: reply if number(messages) == 1 else Reply("2")) as server:
        _, found = ask(server, 3, timeout=3.0 if kind == "timeout" else 60.0)
    assert found.values == [2, None, 2]
    assert found.failures == {kind: 1, "lost": 1}


def test_an_endpoint_without_answers_stops_the_run_and_earlier_answers_are_kept(tmp_path):
    down = Reply("no", status=500)
    with serving(lambda messages, i: Reply("2") if number(messages) < 2 else down) as server:
        ask(server, 2, tmp_path)
        with pytest.raises(OutOfReach, match=r"m answered none of 2 questions \(asking\).*500"):
            ask(server, 2, tmp_path, first=2)
    assert len([json.loads(path.read_text()) for path in tmp_path.glob("*.json")]) == 2


def test_a_cost_is_that_of_both_sides_or_unknown():
    price = Price(prompt=2.0, completion=10.0)
    assert price.of(500_000, 100_000) == pytest.approx(1.0 + 1.0)
    assert Price(prompt=2.0).of(500_000, 100_000) is None
