"""Tools that are added, removed and described anew while an index learns."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from tests import tiny
from tests.serving.indices import SETTINGS, leaves, lived, same


def test_late_feedback_is_learnt_unless_the_tool_was_removed(task):
    def moved(between):
        index = jr.Index(jr.greedy(**SETTINGS), task)
        ticket = index.search(task.queries[0])
        between(index, ticket.ids[0])
        before = np.asarray(index.state.theta)
        index.feedback(ticket, worked=1)
        assert int(index.state.t) == 1
        return np.abs(np.asarray(index.state.theta) - before).max()

    def come_back(index, tool):
        index.remove([tool])
        index.add([tool], [-task.theta[0]])

    assert moved(lambda index, tool: None) > 1e-4
    assert moved(lambda index, tool: index.remove([tool])) == 0
    assert moved(lambda index, tool: index.add(["new"], [task.theta[0]])) > 1e-4
    assert moved(come_back) > 1e-4


def test_an_index_that_grew_does_what_one_that_was_large_does(small):
    """Spare rows change neither the tools shown nor the updates."""
    whole = small(items=20)
    part = jr.Task.from_arrays(
        whole.theta[:12], whole.queries, whole.labels % 12, ids=whole.ids[:12]
    )
    grown = jr.Index(jr.greedy(**SETTINGS), part)
    grown.add(whole.ids[12:], whole.theta[12:])
    large = jr.Index(jr.greedy(**SETTINGS), whole)
    for n in range(10):
        tickets = [index.search(whole.queries[n], k=4) for index in (grown, large)]
        assert tickets[0].ids == tickets[1].ids
        for index, ticket in zip((grown, large), tickets, strict=True):
            index.feedback(ticket, worked=n % 2)
    np.testing.assert_allclose(grown.state.theta[:20], large.state.theta, atol=1e-6)


def test_a_tool_that_comes_back_starts_from_its_new_description(small):
    """Neither the learned row nor the old description remains."""
    learnt, new = small(seed=7).theta, small(seed=9).theta[0]
    index = jr.Index(jr.greedy(**SETTINGS), small())
    index.state = index.state._replace(theta=jnp.asarray(learnt))
    index.remove(["tool_4"])
    index.add(["tool_4"], [new])
    np.testing.assert_allclose(index.state.theta[4], new, atol=1e-6)
    np.testing.assert_array_equal(np.delete(index.state.theta, 4, 0), np.delete(learnt, 4, 0))


def test_tools_go_come_back_and_are_refused_by_name(task):
    index = jr.Index(jr.greedy(**SETTINGS), task)
    index.remove(["tool_3", "tool_5"])
    assert (len(index), "tool_3" in index.ids) == (10, False)
    assert not {"tool_3", "tool_5"} & {*index.search(task.queries[0], k=12).ids}
    index.add(["tool_5", "more"], [task.theta[0], task.theta[1]])
    assert {"tool_5", "more"} < {*index.ids}
    refused = [
        (lambda: index.add(["more"], task.theta[:1]), "'more' exists already: redescribe it"),
        (lambda: index.add(["a", "a"], task.theta[:2]), "ids must differ: 'a' is at 0 and 1"),
        (lambda: index.add(["a"], task.theta[:2]), "of document vectors must be 1, got 2"),
        (lambda: index.add(["a"], [np.ones(3)]), r"8 finite numbers, got the shape \[3\]"),
        (lambda: index.add(["a"], [np.full(8, np.nan)]), "a document must be 8 finite numbers"),
        (lambda: index.add(["a"], ["a text"]), "texts need an encoder"),
        (lambda: index.add("a", task.theta[:1]), "a list of one or more is needed, got 'a'"),
        (lambda: index.remove(["tool_3"]), "no tool 'tool_3'; there are 12"),
        (lambda: index.remove([]), "a list of one or more is needed"),
        (lambda: index.redescribe(["nobody"], task.theta[:1]), "no tool 'nobody'"),
        (lambda: index.redescribe(["more"], task.theta[:1], how="kept"), "how must be keep, reset"),
        (lambda: index.search(np.ones(5)), "a query must be 8 finite numbers"),
        (lambda: index.search("a text"), "texts need an encoder"),
        (lambda: index.search(task.queries[0], k=0), "k must be >= 1"),
    ]
    before = leaves(index)
    for call, message in refused:
        with pytest.raises(ValueError, match=message):
            call()
        same(leaves(index), before)
        assert len(index) == 12
    index.remove(index.ids)
    with pytest.raises(ValueError, match="the catalogue is empty: add tools first"):
        index.search(task.queries[0])


@pytest.mark.parametrize("how", ["keep", "reset", "carry"])
def test_a_new_description_keeps_resets_or_carries_what_was_learnt(small, how):
    """Rows need not have length 1: a change made by the projection does not count as learned."""
    made = small()
    task = jr.Task.from_arrays(3 * made.theta, made.queries, made.labels, ids=made.ids)
    index = lived(jr.Index(jr.greedy(tau=0.1, eta=0.01), task), task, rounds=20)
    row = int(np.abs(np.asarray(index.state.theta) - made.theta).sum(axis=1).argmax())
    before, new = np.asarray(index.state.theta), small(seed=9).theta[0]
    learnt = before[row] - made.theta[row]
    index.redescribe([task.ids[row]], [5 * new], how=how)
    want = {"keep": before[row], "reset": new, "carry": new + learnt}[how]
    got = np.asarray(index.state.theta)
    np.testing.assert_allclose(got[row], want / np.linalg.norm(want), atol=1e-6)
    np.testing.assert_array_equal(np.delete(got, row, 0), np.delete(before, row, 0))
    if how == "keep":
        np.testing.assert_array_equal(got, before)
    index.redescribe([task.ids[row]], [new], how="reset")
    np.testing.assert_allclose(np.asarray(index.state.theta)[row], new, atol=1e-6)
    other = small(seed=9).theta[1]
    index.redescribe([task.ids[row]], [other], how="carry")  # nothing was learned since the reset
    np.testing.assert_allclose(np.asarray(index.state.theta)[row], other, atol=1e-6)


def test_texts_are_searched_added_and_described(tmp_path):
    vectors = np.eye(12, dtype=np.float32)
    task = jr.Task.from_arrays(vectors, vectors, range(12))
    index = jr.Index(jr.greedy(), replace(task, encoder=tiny.encoder(tmp_path)))
    index.add(["abc"], ["a  b\nc d"])
    for text in ("a b c d", "e f g"):
        ticket = index.search(text, k=13)
        assert ticket.scores[ticket.ids.index("abc")] == pytest.approx(1.0, abs=1e-5)
        index.redescribe(["abc"], ["e f g"], how="reset")
    with pytest.raises(ValueError, match="is empty"):
        index.search("  ")
    index.search(task.queries[0])  # vectors are valid queries, too
