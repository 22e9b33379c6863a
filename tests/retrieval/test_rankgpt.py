"""RankGPT: parsing of answers by hand, and servers that know all or part of the right order."""

import re

import pytest

from jaxret.llm import Chat, Endpoint, Malformed
from jaxret.retrieval import rankgpt
from tests.fake_llm import Reply, serving


@pytest.mark.parametrize(
    ("answer", "order", "counts"),
    [
        ("[2] > [1] > [3]", [1, 0, 2], (3, 0, 0)),
        ("The best is 3, then 1.", [2, 0, 1], (2, 0, 0)),  # the rest keeps its order
        ("[2] > [2] > [9] > [0]", [1, 0, 2], (1, 1, 2)),  # repeated, too large, too small
        ("[3] > [2] > [1] > [3]", [2, 1, 0], (3, 1, 0)),
        ("3", [2, 0, 1], (1, 0, 0)),
    ],
)
def test_an_order_is_read_and_completed(answer, order, counts):
    found = rankgpt.read_order(answer, 3)
    assert found.positions == order
    assert found[1:] == counts
    assert found.whole == (counts == (3, 0, 0))


def test_windows_slide_from_the_end_to_the_start():
    assert rankgpt.windows(1) == [(0, 1)]
    assert rankgpt.windows(20) == [(0, 20)]
    assert rankgpt.windows(25) == [(5, 25), (0, 15)]
    assert rankgpt.windows(40) == [(20, 40), (10, 30), (0, 20)]


@pytest.mark.parametrize("answer", ["", "none of them", "[7] > [8]"])
def test_an_answer_without_a_passage_is_malformed(answer):
    with pytest.raises(Malformed, match="names none of the 3 passages"):
        rankgpt.read_order(answer, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rankgpt.windows(9, size=4, step=5), r"step must be in \[1, 4\], got 5"),
        (
            lambda: rankgpt.rank(None, ["q", "p"], [["a", "b"], ["c"]]),
            "their lengths must be all the same",
        ),
        (lambda: rankgpt.rank(None, ["q", "p"], [["a", "b"]]), "lists must be 2, one per query"),
    ],
)
def test_useless_windows_and_lists_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_passages_are_cut_and_numbered():
    messages = rankgpt.question("q?", ["a b c", "d\ne"], words=2)
    passages = [m["content"] for m in messages if m["content"].startswith("[")]
    assert passages == ["[1] a b", "[2] d e"]
    assert "q?" in messages[-1]["content"]
    roles = [m["role"] for m in messages]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]


def by_worth(messages, number):
    """Order passages by the number that each contains, the largest first."""
    passages = [m["content"] for m in messages if m["content"].startswith("[")]
    worth = [int(re.search(r"worth (\d+)", p)[1]) for p in passages]
    order = sorted(range(len(worth)), key=lambda i: -worth[i])
    return Reply(" > ".join(f"[{i + 1}]" for i in order))


@pytest.fixture
def ask(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    return lambda server: Chat(Endpoint(model="m", base_url=server.url, retries=0, attempts=2))


def test_the_best_of_a_long_list_rises_to_its_top(ask):
    lists = [[f"worth {i}" for i in range(7)], [f"worth {i}" for i in range(13, 6, -1)]]
    with serving(by_worth) as server:
        found = rankgpt.rank(ask(server), ["q", "p"], lists, size=4, step=2)
        assert len(server.requests) == 6
        short = rankgpt.rank(ask(server), ["q"], [["worth 1", "worth 3", "worth 2"]])
    rising, falling = found.orders.tolist()
    assert rising[:2] == [6, 5]  # windows of 4 with step 2 move two passages all the way up
    assert sorted(rising) == list(range(7))
    assert falling == list(range(7))  # already in order
    assert all(answer.whole for window in found.answers for answer in window)
    assert short.orders.tolist() == [[1, 2, 0]]  # positions of the list that was given


def test_a_window_without_a_useful_answer_stays_as_it_was(ask):
    def says(messages, i):
        return Reply("[2] > [1]" if "p" in messages[-1]["content"][:9] else "I cannot help.")

    with serving(says) as server:
        found = rankgpt.rank(ask(server), ["q", "p"], [["a", "b"], ["c", "d"]])
    assert found.orders.tolist() == [[0, 1], [1, 0]]
    assert [answer is None for answer in found.answers[0]] == [True, False]
    assert len(server.requests) == 3  # two attempts for "q" and one for "p"
