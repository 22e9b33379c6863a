"""Splitting questions into hops, on queries written by hand and on DeskBank."""

import pytest

from jaxret.data import load
from jaxret.data.dataset import Query, build
from jaxret.data.hops import as_hops, by_evidence, by_plan

TOOLS = [(name, name) for name in "abc"]
QUESTIONS = build(
    "x",
    TOOLS,
    [Query("1", "fly home", ("b", "a")), Query("2", "pay", ("c",)), Query("3", "go", ("a",))],
)


def test_every_step_is_a_query_in_the_group_of_its_question():
    queries = [
        Query("1", "first", ("a",)),  # no steps
        Query("2", "fly home", ("b", "a"), steps=(("find a flight", "b"), ("book it", "a"))),
        Query("3", "pay", ("c", "b"), steps=(("see the bill", "c"), ("pay it", "b"))),
    ]
    hops = as_hops(build("x", TOOLS, queries))
    assert hops.queries[:2] == (
        "Context: fly home | Focus: find a flight",
        "Context: fly home | Focus: book it",
    )
    assert hops.query_ids == ("2.0", "2.1", "3.0", "3.1")
    assert hops.labels.tolist() == [[1], [0], [2], [1]]
    assert hops.groups.tolist() == [0, 0, 1, 1]
    assert hops.steps is None


def test_deskbanks_questions_have_as_many_hops_as_tools():
    questions = load("deskbank", part="multi")
    hops = as_hops(questions)
    assert len(hops.queries) == (questions.labels >= 0).sum()
    assert len(set(hops.groups.tolist())) == len(questions.queries) == 336


def test_without_steps_every_right_item_is_a_hop_in_the_words_of_the_question():
    hops = by_evidence(QUESTIONS)
    assert hops.queries == ("fly home", "fly home", "pay", "go")
    assert hops.labels.tolist() == [[1], [0], [2], [0]]
    assert hops.groups.tolist() == [0, 0, 1, 2]


def test_sub_questions_have_all_labels_of_their_question():
    hops = by_plan(QUESTIONS, [["which flight?"], ["what?", "how {much}?"], ["where?"]])
    assert hops.queries[1:3] == ("Context: pay | Focus: what?", "Context: pay | Focus: how {much}?")
    assert hops.labels.tolist() == [[1, 0], [2, -1], [2, -1], [0, -1]]
    assert hops.groups.tolist() == [0, 1, 1, 2]


def test_data_sets_without_hops_and_incomplete_plans_are_refused():
    with pytest.raises(ValueError, match="deskbank has no queries with steps"):
        as_hops(load("deskbank"))
    with pytest.raises(ValueError, match="deskbank has one label per query: there is nothing to p"):
        by_evidence(load("deskbank"))
    for plans in ([["a"], ["b"]], [["a"], [], ["b"]]):
        with pytest.raises(ValueError, match="x has 3 queries, each needs a plan of at least one"):
            by_plan(QUESTIONS, plans)
