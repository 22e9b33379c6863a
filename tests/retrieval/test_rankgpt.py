"""Answers by hand; and a server that knows the right order, or half of it."""

import re

import pytest

from jaxret.llm import Chat, Endpoint, Malformed, Unanswered
from jaxret.retrieval import rankgpt
from tests.fake_llm import Reply, serving


@pytest.mark.parametrize(
    ("answer", "order"),
    [
        ("[2] > [1] > [3]", [1, 0, 2]),
        ("The best is 3, then 1.", [2, 0, 1]),  # half a permutation: the rest as before
        ("[2] > [2] > [9] > [0]", [1, 0, 2]),  # twice, too large, too small
        ("3", [2, 0, 1]),
    ],
)
def test_an_order_is_read_and_completed(answer, order):
    assert rankgpt.permutation(answer, 3) == order


@pytest.mark.parametrize("answer", ["", "none of them", "[7] > [8]"])
def test_an_answer_without_a_passage_is_malformed(answer):
    with pytest.raises(Malformed, match="names none of the 3 passages"):
        rankgpt.permutation(answer, 3)


@pytest.mark.parametrize(
    ("n", "parts"),
    [
        (1, [(0, 1)]),
        (20, [(0, 20)]),
        (25, [(5, 25), (0, 15)]),
        (40, [(20, 40), (10, 30), (0, 20)]),
    ],
)
def test_windows_slide_from_the_end_to_the_start(n, parts):
    assert rankgpt.windows(n) == parts


def test_windows_that_would_stand_still_are_refused():
    with pytest.raises(ValueError, match=r"step must be in \[1, 4\], got 5"):
        rankgpt.windows(9, size=4, step=5)


def test_passages_are_cut_and_numbered():
    messages = rankgpt.question("q?", ["a b c", "d\ne"], words=2)
    passages = [m["content"] for m in messages if m["content"].startswith("[")]
    assert passages == ["[1] a b", "[2] d e"]
    assert "q?" in messages[-1]["content"]
    roles = [m["role"] for m in messages]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]


def by_worth(messages, number):
    """Orders passages by the number that each holds, the largest first."""
    passages = [m["content"] for m in messages if m["content"].startswith("[")]
    worth = [int(re.search(r"worth (\d+)", p)[1]) for p in passages]
    order = sorted(range(len(worth)), key=lambda i: -worth[i])
    return Reply(" > ".join(f"[{i + 1}]" for i in order))


@pytest.fixture
def ask(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    return lambda server: Chat(Endpoint(model="m", base_url=server.url, retries=0, attempts=2))


def test_the_best_of_a_long_list_rises_to_its_top(ask):
    documents = [f"worth {i}" for i in range(7)]
    with serving(by_worth) as server:
        order = rankgpt.rank(ask(server), "q", documents, size=4, step=2)
    assert order[:2] == [6, 5]  # a window of 4 that moves by 2 carries two of them all the way
    assert sorted(order) == list(range(7))
    assert len(server.requests) == 3


def test_a_model_that_says_nothing_useful_is_an_error(ask):
    with (
        serving(lambda messages, i: Reply("I cannot help with that.")) as server,
        pytest.raises(Unanswered, match="no valid answer in 2 attempts: names none of the 2"),
    ):
        rankgpt.rank(ask(server), "q", ["a", "b"])
