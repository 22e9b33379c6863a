"""What a planner, a judge and an answerer may say, and what is asked of them."""

import json

import pytest

from jaxret.llm import Malformed
from jaxret.retrieval import multihop


@pytest.mark.parametrize(
    "answer",
    [
        '{"sub_questions": ["who?", " when? "]}',
        'Sure:\n```json\n{"sub_questions": ["who?", "when?"]}\n```',
    ],
)
def test_a_plan_is_read_whatever_stands_around_it(answer):
    assert multihop.plan(answer, max_hops=2) == ["who?", "when?"]


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
        multihop.plan(answer, max_hops=2)


@pytest.mark.parametrize("index", [-1, 0, 4])
def test_a_verdict_is_a_position_or_none(index):
    assert multihop.verdict(json.dumps({"index": index}), 5) == index


@pytest.mark.parametrize("index", ["5", "-2", "1.0", "true", "null", '"1"', "[1]"])
def test_a_verdict_outside_the_slate_is_malformed(index):
    with pytest.raises(Malformed, match=r"a whole number in -1 \.\. 4"):
        multihop.verdict(f'{{"index": {index}}}', 5)


@pytest.mark.parametrize("answer", ["Paris", '{"answer": ""}', '{"answer": 42}', '{"index": 1}'])
def test_an_answer_without_text_is_malformed(answer):
    with pytest.raises(Malformed):
        multihop.final_answer(answer)


def test_questions_number_the_documents_as_verdicts_do_and_cut_them():
    [message] = multihop.verdict_question("who {?}", ["a b c d", "e"], words=3)
    assert "[0] a b c\n\n[1] e" in message["content"]
    assert "who {?}" in message["content"]
    assert "0 to 1, or -1" in message["content"]
    [message] = multihop.answer_question("who?", ["a b c d", "e"], words=3)
    assert "[0] a b c\n\n[1] e" in message["content"]
    [message] = multihop.plan_question("who?", max_hops=4)
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
        ("anything", "The", False, False),  # nothing remains of the gold answer
    ],
)
def test_answers_are_held_against_each_other_without_case_articles_and_punctuation(
    answer, gold, exact, contains
):
    assert multihop.exact(answer, gold) == exact
    assert multihop.contains(answer, gold) == contains
