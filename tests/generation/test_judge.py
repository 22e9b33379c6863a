"""Judges whose taste is known: a fair one, one that likes what comes first, a confused one."""

import json
import re

import numpy as np
import pytest

from jaxret.generation import judge
from jaxret.generation.judge import CRITERIA, Verdicts
from jaxret.llm import Chat, Endpoint, Stage
from tests.fake_llm import Reply, serving

PAIRS = [("Plain words.", "do it"), ("do that", "A longer wish."), ("same", "same"), ("ab", "b")]


def verdicts(pick, monkeypatch, pairs=PAIRS):
    """What is found with a judge: (first, second) -> A, B or tie, or another text."""
    monkeypatch.setenv("OPENAI_API_KEY", "any")

    def answer(messages, i):
        said = pick(*re.findall(r"Request [AB]: (.*)", messages[1]["content"]))
        return Reply(json.dumps(dict.fromkeys(CRITERIA, said)))

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url))
        found = judge.compare(Stage(chat), pairs, attempts=2)
    return found, len(server.requests)


def rates(found):
    return {name: rows.tolist() for name, rows in judge.outcomes(found).items()}


def test_a_fair_judge_gives_wins_and_losses_in_both_orders(monkeypatch):
    def longer(a, b):
        return "tie" if len(a) == len(b) else "A" if len(a) > len(b) else "B"

    found, asked = verdicts(longer, monkeypatch)
    assert asked == 2 * len(PAIRS) - 1  # (same, same) is one question in both orders
    for criterion in CRITERIA:
        assert rates(found)[f"{criterion}/win"] == [1, 0, 0, 1]
        assert rates(found)[f"{criterion}/loss"] == [0, 1, 0, 0]
        assert rates(found)[f"{criterion}/tie"] == [0, 0, 1, 0]
        assert rates(found)[f"{criterion}/position"] == [0, 0, 0, 0]


def test_a_judge_that_likes_what_comes_first_decides_nothing_and_is_seen(monkeypatch):
    found, _ = verdicts(lambda a, b: "A", monkeypatch)
    assert rates(found)["overall/tie"] == [1, 1, 1, 1]
    assert rates(found)["overall/position"] == [1, 1, 1, 1]


def test_half_a_verdict_is_a_tie_without_bias():
    forward, backward = (np.array([[v] * 4 for v in some]) for some in ([1, 0, -1], [0, 1, 0]))
    found = rates(Verdicts(forward, backward, failures={}))
    assert found["fluency/tie"] == [1, 1, 1]
    assert found["fluency/win"] == found["fluency/loss"] == found["fluency/position"] == [0, 0, 0]


def test_a_judge_that_says_neither_is_asked_again_and_then_its_pair_is_left_out(monkeypatch):
    def confused(a, b):
        return "both" if {a, b} == {"ab", "b"} else "A" if a > b else "B"

    found, _ = verdicts(confused, monkeypatch)
    assert len(found.forward) == 3
    assert found.failures == {"verdict": 4, "lost": 2}


@pytest.mark.parametrize("said", ['{"naturalness": "A"}', "A", '{"overall": 1}'])
def test_a_verdict_needs_every_criterion(said):
    with pytest.raises(judge.Wrong):
        judge.check(said)
