"""Searches among an allowed set: as in a catalogue without the other tools."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.serving.program import best_first
from tests.serving.indices import SETTINGS, leaves, same
from tests.serving.test_prior import encode

ALLOWED = [1, 3, 4]


def only_allowed(task):
    """Return the same task, in which all other tools are absent."""
    return replace(task, available=np.isin(np.arange(len(task.ids)), ALLOWED))


@pytest.mark.parametrize(
    "learner",
    [
        jr.orag(**SETTINGS),
        jr.with_exploration(jr.greedy(**SETTINGS), 0.5),
        jr.with_balance(jr.centred_replayed(**SETTINGS)),
        pytest.param(jr.mixture(), marks=pytest.mark.slow),
    ],
    ids=lambda learner: learner.name,
)
def test_an_allowed_set_is_drawn_and_learnt_as_if_the_other_tools_were_absent(small, learner):
    task = small(items=6)
    index, absent = jr.Index(learner, task), jr.Index(learner, only_allowed(task))
    allowed = [task.ids[i] for i in ALLOWED]
    first, probabilities = set(), jax.jit(learner.probabilities)
    for n in range(25):
        query = task.queries[n]
        ticket, expected = index.search(query, k=2, allowed=allowed), absent.search(query, k=2)
        assert ticket[:4] == expected[:4]
        own = np.asarray(probabilities(absent.state, query))  # the enumeration over all tools
        chosen = float(own[task.ids.index(ticket.ids[0])])
        assert ticket.propensities[0] == pytest.approx(chosen, rel=1e-5)
        assert own[ALLOWED].sum() == pytest.approx(1, rel=1e-5)
        for one, its in ((index, ticket), (absent, expected)):
            one.feedback(its, worked=n % 2, item=its.ids[n % 3 % 2])
        first.add(ticket.ids[0])
    same(leaves(index)[:1] + leaves(index)[2:], leaves(absent)[:1] + leaves(absent)[2:])
    np.testing.assert_array_equal(index.state.available, np.ones(6, bool))
    assert first <= {*allowed}
    assert len(first) == 3


def test_ids_masks_and_removed_tools_are_the_same_set_without_another_program(task):
    index = jr.Index(jr.greedy(**SETTINGS), task)
    index.remove(["tool_5"])
    mask = np.isin(index.ids, ["tool_2", "tool_7"])
    given = [mask, mask.tolist(), ["tool_7", "tool_2"], {"tool_2", "tool_7"}]
    given.append(("tool_2", "tool_5", "tool_7"))  # the second may be allowed again one day
    tickets = [index.search(task.queries[0], k=12, allowed=one) for one in given]
    assert all(sorted(ticket.ids) == ["tool_2", "tool_7"] for ticket in tickets)
    size = index._search._cache_size()
    index.search(task.queries[0], k=5)
    for n in range(1, 9):
        assert len(index.search(task.queries[0], k=12, allowed=index.ids[:n]).ids) == n
    assert index._search._cache_size() == size
    for wrong, message in (
        ("tool_2", "allowed must be a list of ids or a mask, got the single 'tool_2'"),
        (["tool_2", "nobody"], "allowed has no tool 'nobody': it was never added"),
        (["tool_2", 7], "allowed has no tool 7"),
        (["tool_5"], "allowed must have an available tool, got 1 without one"),
        ([], "allowed must have an available tool, got 0"),
        (mask[1:], "the length of the mask allowed must be 11, got 10"),
        (np.zeros(11, bool), "allowed must have an available tool"),
    ):
        with pytest.raises(ValueError, match=message):
            index.search(task.queries[0], allowed=wrong)


def test_what_was_learnt_of_a_tool_stays_while_it_is_hidden(task):
    """Hiding a tool for one request by removing and adding it would forget it."""
    index = jr.Index(jr.greedy(tau=0.05, eta=0.05), task)
    query = task.queries[3]
    for _ in range(20):
        ticket = index.search(query)
        index.feedback(ticket, worked=ticket.ids[0] == "tool_2")
    learnt = leaves(index)
    ticket = index.search(query, k=3, allowed=[one for one in index.ids if one != "tool_2"])
    assert "tool_2" not in ticket.ids
    same(leaves(index), learnt)
    row = np.asarray(index.state.theta[2])
    index.feedback(ticket, worked=False)
    np.testing.assert_allclose(index.state.theta[2], row, atol=1e-6)


def test_feedback_after_changes_keeps_to_the_set_and_to_what_is_available(task):
    index = jr.Index(jr.greedy(**SETTINGS), task)
    ticket = index.search(task.queries[0], k=4, allowed=[f"tool_{n}" for n in (1, 2, 4, 6)])
    index.add([f"new_{n}" for n in range(9)], task.theta[:9])  # the state grows
    index.remove(["tool_4"])
    before = np.asarray(index.state.theta)
    left = {"tool_1", "tool_2", "tool_6"}
    index.feedback(ticket, worked=True, item="tool_2")
    moved = (abs(np.asarray(index.state.theta) - before) > 1e-5).any(axis=1)
    assert {one for row, one in enumerate(index.names) if moved[row]} == left


def test_the_log_names_a_set_once_and_lists_its_tools_once(task, tmp_path):
    index = jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "log.jsonl")
    for n in range(6):
        index.search(task.queries[n], allowed=task.ids[n % 2 :][:4])
    index.search(task.queries[0])
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    sets = {line["set"]: line["ids"] for line in lines if "set" in line}
    assert sum("set" in line for line in lines) == 2
    assert [sets[one["allowed"]] for one in lines if "allowed" in one] == [
        list(task.ids[n % 2 :][:4]) for n in range(6)
    ]
    log = jr.load_log(tmp_path / "log.jsonl", task)
    shown = log.sets[log.shown_from]
    for n in range(6):
        np.testing.assert_array_equal(np.flatnonzero(shown[n]), np.arange(4) + n % 2)
    assert shown[6].all()


def test_words_are_matched_with_allowed_tools_alone():
    """The few tools with scores are chosen among the allowed ones."""
    documents = ["train one", "train two", "train three", "a train of cars"]
    made = jr.Task.from_arrays(
        encode(documents), encode(documents), [0, 1, 2, 3], texts=documents, documents=documents
    )
    index = jr.Index(jr.with_lexical(jr.frozen(), 0.99, width=1), replace(made, encoder=encode))
    best = index.search("train", k=4)
    assert best.ids[0] in {"0", "1", "2"}
    hidden = index.search("train", k=1, allowed=["3"])
    assert hidden.ids == ["3"]
    alone = index.search("train", k=4).scores[best.ids.index("3")]
    assert hidden.scores[0] > alone + 1  # its words count only where they are among the best K


@pytest.mark.parametrize("count", [1, 3, 7, 19, 20, 30])
def test_the_best_are_those_of_a_stable_sort(count):
    rng = np.random.default_rng(count)
    for _ in range(30):
        scores = rng.integers(4, size=20).astype(np.float32)
        scores[rng.random(20) < 0.2] = -np.inf
        want = np.argsort(-scores, kind="stable")[:count]
        np.testing.assert_array_equal(best_first(scores, count), want)
