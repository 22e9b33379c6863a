"""Who picks from a slate: language models as judges."""

import re

import numpy as np
import pytest

from jaxret.llm import Chat, Endpoint
from jaxret.retrieval import selectors
from tests.fake_llm import Reply, serving


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")


def test_a_judge_of_one_document_at_a_time_picks_the_likeliest_and_asks_a_pair_once():
    asked = []
    believed = {"a": 0.2, "b": 0.9, "c": 0.4, "d": 0.4}

    def answer(messages, i):
        question, document = re.match(
            r"Question: (.*)\n\nDocument: (.*)\n", messages[0]["content"]
        ).groups()
        asked.append((question, document))
        if document == "e":
            return Reply("perhaps", first=(("perhaps", 1.0),))
        p = believed[document]
        return Reply("yes", first=((" Yes", p / 2), ("yes", p / 2), ("No", 1 - p)))

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url, retries=0, attempts=1))
        given = (chat, ["q", "p"], list("abcde"))
        both = selectors.by_fit(*given, own_bit=True)
        queries = np.array([0, 1, 0])
        items = np.array([[0, 1, 2], [4, 2, 3], [4, 0, 0]])
        picked, bits = both(queries, items)
        assert picked.tolist() == [1, 1, 1]  # the first of equals; what has no answer counts as no
        assert bits.tolist() == [1, 0, 0]
        assert len(asked) == len(set(asked)) == 7
        again, _ = both(queries, items)
        assert again.tolist() == picked.tolist()
        assert len(asked) == 7
        assert selectors.by_fit(*given)(queries[:1], items[:1]).tolist() == [1]


def test_an_index_outside_the_slate_is_asked_for_again_and_then_the_first_is_used():
    def answer(messages, i):
        again = "stubborn" not in messages[0]["content"] and i > 0
        return Reply('{"index": 1}' if again else '{"index": 3}')

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url, attempts=2, concurrency=1))
        choose = selectors.by_judge(chat, ["mild", "stubborn"], list("abcde"), own_bit=True)
        positions, bits = choose(np.array([0, 1]), np.array([[4, 0, 2], [1, 3, 0]]))
    assert positions.tolist() == [1, 0]
    assert bits.tolist() == [1, 0]
    assert (chat.counts["malformed"], chat.counts["unanswered"]) == (3, 1)
