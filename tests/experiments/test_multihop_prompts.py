"""Prompts of the planner, the judge and the answerer, and the answers that are accepted."""

import re

import numpy as np
import pytest

from experiments.multihop import prompts
from jaxret.llm import Chat, Endpoint, Malformed, replace_prompts
from tests.fake_llm import Reply, serving


def test_a_plan_is_parsed_from_surrounding_text():
    plan = '{"sub_questions": ["who?", " when? "]}'
    for answer in (plan, f"Sure:\n```json\n{plan}\n```"):
        assert prompts.plan(answer, max_hops=2) == ["who?", "when?"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("1. who? 2. when?", "no JSON object with 'sub_questions'"),
        ('{"sub_questions": ["who?"', "no JSON object"),
        ('{"questions": ["who?"]}', "no JSON object with 'sub_questions'"),
        ('["who?"]', "no JSON object"),
        ('{"sub_questions": "who?"}', "a list of 1 to 2, got 'who"),
        ('{"sub_questions": []}', r"a list of 1 to 2, got \[\]"),
        ('{"sub_questions": ["a", "b", "c"]}', "a list of 1 to 2"),
        ('{"sub_questions": ["a", " "]}', "must be texts, got ' '"),
        ('{"sub_questions": ["a", {"b": 1}]}', "must be texts, got {'b': 1}"),
    ],
)
def test_a_plan_that_is_not_what_was_asked_is_malformed(answer, why):
    with pytest.raises(Malformed, match=why):
        prompts.plan(answer, max_hops=2)


@pytest.mark.parametrize("index", ["5", "-2", "1.0", "true", "null", '"1"', "[1]"])
def test_a_verdict_is_a_position_or_none_and_any_other_is_malformed(index):
    assert [prompts.verdict(f'{{"index": {i}}}', 5) for i in (-1, 0, 4)] == [-1, 0, 4]
    with pytest.raises(Malformed, match=r"a whole number in -1 \.\. 4"):
        prompts.verdict(f'{{"index": {index}}}', 5)


@pytest.mark.parametrize("answer", ["Paris", '{"answer": ""}', '{"answer": 42}', '{"index": 1}'])
def test_an_answer_without_text_is_malformed(answer):
    with pytest.raises(Malformed):
        prompts.final_answer(answer)


def test_questions_number_the_documents_as_verdicts_do_and_cut_them(monkeypatch):
    monkeypatch.setattr(prompts, "WORDS", 3)
    text = prompts.numbered(["a b c d", "e"])
    assert text == "[0] a b c\n\n[1] e"
    [message] = prompts.PROMPTS["judge"].messages(query="who {?}", n="2", last="1", documents=text)
    assert all(x in message["content"] for x in (text, "who {?}", "0 to 1, or -1"))
    [message] = prompts.PROMPTS["plan"].messages(query="who?", max_hops="4")
    assert "at most 4" in message["content"]


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "contains"),
    [
        ("The Verge.", "verge", True, True),
        ("Sam Bankman-Fried", "Sam Bankman-Fried", True, True),
        ("It was the Verge, in 2023", "The Verge", False, True),
        ("Google", "Google Search", False, False),
        ("nothing", "no", False, False),  # whole words only
        ("", "yes", False, False),
        ("anything", "The", False, False),  # normalisation leaves nothing of the gold answer
    ],
)
def test_answers_are_compared_without_case_articles_and_punctuation(answer, gold, exact, contains):
    assert prompts.exact(answer, gold) == exact
    assert prompts.contains(answer, gold) == contains


def test_a_judge_of_one_document_at_a_time_picks_the_likeliest_and_asks_a_pair_once(key):
    asked = []
    believed = {"a": 0.2, "b": 0.9, "c": 0.4, "d": 0.4}

    def answer(messages, i):
        pair = re.match(r"Question: (.*)\n\nDocument: (.*)\n", messages[0]["content"])
        asked.append(pair.groups())
        if pair[2] == "e":
            return Reply("perhaps", first=(("perhaps", 1.0),))
        p = believed[pair[2]]
        return Reply("yes", first=((" Yes", p / 2), ("yes", p / 2), ("No", 1 - p)))

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url, retries=0, attempts=1))
        given = (chat, ["q", "p"], list("abcde"))
        both = prompts.by_fit(*given, own_bit=True)
        queries = np.array([0, 1, 0])
        items = np.array([[0, 1, 2], [4, 2, 3], [4, 0, 0]])
        for _ in range(2):
            picked, bits = both(queries, items)
            assert picked.tolist() == [1, 1, 1]  # ties go to the first; no answer counts as no
            assert bits.tolist() == [1, 0, 0]
            assert len(asked) == len(set(asked)) == 7
        assert prompts.by_fit(*given)(queries[:1], items[:1]).tolist() == [1]


def test_an_index_outside_the_slate_is_asked_for_again_and_then_the_first_is_used(key):
    def answer(messages, i):
        again = "stubborn" not in messages[0]["content"] and i > 0
        return Reply('{"index": 1}' if again else '{"index": 3}')

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url, attempts=2, concurrency=1))
        choose = prompts.by_judge(chat, ["mild", "stubborn"], list("abcde"), own_bit=True)
        positions, bits = choose(np.array([0, 1]), np.array([[4, 0, 2], [1, 3, 0]]))
    assert positions.tolist() == [1, 0]
    assert bits.tolist() == [1, 0]
    assert (chat.counts["malformed"], chat.counts["unanswered"]) == (3, 1)


def test_a_users_prompt_is_sent_and_has_its_own_cache_entries(tmp_path, key):
    """The cache stores answers separately for each prompt text."""
    asked, file = [], tmp_path / "paper.txt"

    def answer(messages, i):
        asked.append(messages[0]["content"])
        return Reply('{"index": 0}')

    with serving(answer) as server:
        chat = Chat(Endpoint(model="m", base_url=server.url), tmp_path / "cache")
        for text in ("A: $query, $documents", "A: $query, $documents", "B: $query, $documents"):
            file.write_text(text)
            judge = replace_prompts(prompts.PROMPTS, {"judge": file})["judge"]
            choose = prompts.by_judge(chat, ["who?"], ["d"], prompt=judge)
            assert choose(np.array([0]), np.array([[0]])).tolist() == [0]
    assert asked == ["A: who?, [0] d", "B: who?, [0] d"]
