"""The live loop: chances by enumeration, tickets answered once, tools that come and go."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.types import Choice, Feedback
from tests import tiny

SETTINGS = {"tau": 0.3, "eta": 0.02}


def leaves(index):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(index.state)]


def same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def lived(index, task, rounds=6):
    """Some rounds of use, after which everything that a learner remembers has moved."""
    for n in range(rounds):
        ticket = index.search(task.queries[n], k=3)
        index.feedback(ticket, worked=n % 2, item=ticket.ids[n % 3])
    return index


@pytest.mark.parametrize("k", [1, 2, 3, 6, 9])
@pytest.mark.parametrize(
    "learner",
    [
        jr.orag(**SETTINGS),
        jr.greedy(**SETTINGS),
        jr.banditron(tau=0.3, epsilon=0.3),
        jr.with_exploration(jr.orag(**SETTINGS), 0.5),
    ],
    ids=lambda learner: learner.name,
)
def test_propensities_are_those_of_the_enumeration(small, learner, k):
    """Whatever may be chosen first is, once; the list that follows is written out."""
    task = small(items=6)
    index = jr.Index(learner, task)
    query = task.queries[0]
    chances = np.asarray(learner.chances(index.state, jnp.asarray(query)), np.float64)
    best_first = np.argsort(-(task.theta @ query), kind="stable")
    listed = np.zeros(6)
    for first in range(6):
        rest = [row for row in best_first if row != first][: k - 1]
        listed[[first, *rest]] += chances[first]
    firsts = set()
    for _ in range(40):
        ticket = index.search(query, k=k)
        rows = [task.ids.index(one) for one in ticket.ids]
        firsts.add(rows[0])
        assert rows[1:] == [row for row in best_first if row != rows[0]][: k - 1]
        assert ticket.propensities[0] == pytest.approx(chances[rows[0]], rel=1e-5)
        np.testing.assert_allclose(ticket.propensities[1:], listed[rows[1:]], rtol=1e-5)
        np.testing.assert_allclose(ticket.scores, (task.theta @ query)[rows], rtol=1e-5)
    assert len(ticket.ids) == min(k, 6)
    assert len(firsts) > 1 or learner.name == "greedy"


def test_what_is_learnt_is_one_update_of_the_learner(task):
    learner = jr.orag(**SETTINGS)
    index = jr.Index(learner, task)
    ticket = index.search(task.queries[0], k=3)
    before = index.state
    index.feedback(ticket, worked=0.25, item=ticket.ids[2])
    choice = Choice(
        jnp.asarray(task.ids.index(ticket.ids[2]), jnp.int32), jnp.asarray(ticket.propensities[2])
    )
    feedback = Feedback(jnp.asarray(0.25), jnp.asarray(True))
    after = learner.update(before, jnp.asarray(task.queries[0]), choice, feedback)
    np.testing.assert_allclose(index.state.theta, after.theta, atol=1e-6)
    assert np.abs(after.theta - before.theta).max() > 1e-4
    assert repr(index) == "<index of orag: 12 tools, 1 answers, 0 open tickets>"


def test_a_tool_that_works_comes_first(task):
    index = jr.Index(jr.greedy(tau=0.1, eta=0.05), task)
    wanted = index.search(task.queries[3], k=12).ids[4]
    for _ in range(100):
        ticket = index.search(task.queries[3])
        index.feedback(ticket, worked=ticket.ids[0] == wanted)
    assert index.search(task.queries[3]).ids == [wanted]


def test_what_is_refused_changes_nothing_and_leaves_the_ticket_open(task):
    index = jr.Index(jr.orag(**SETTINGS), task)
    ticket, before = index.search(task.queries[0], k=2), leaves(index)
    absent = next(one for one in task.ids if one not in ticket.ids)
    elsewhere = jr.Index(jr.orag(**SETTINGS), task, seed=1)
    theirs = next(
        found
        for n in range(60)
        if (found := elsewhere.search(task.queries[n], k=2)).ids != ticket.ids
    )._replace(number=ticket.number)
    wrong = [
        (ticket, {"worked": float("nan")}, r"worked must be in \[0, 1\], got nan"),
        (ticket, {"worked": float("inf")}, r"worked must be in \[0, 1\], got inf"),
        (ticket, {"worked": 1.5}, r"worked must be in \[0, 1\], got 1.5"),
        (ticket, {"worked": -0.1}, r"worked must be in \[0, 1\], got -0.1"),
        (ticket, {"worked": 1, "item": absent}, "item must be on the ticket, one of"),
        (ticket._replace(number=99), {"worked": 1}, "ticket 99 is not open"),
        (theirs, {"worked": 1}, "comes from another index"),
    ]
    for given, arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            index.feedback(given, **arguments)
        same(leaves(index), before)
        assert list(index.tickets) == [ticket.number]
    index.feedback(ticket, worked=1)
    with pytest.raises(ValueError, match="ticket 0 is not open: it was answered before"):
        index.feedback(ticket, worked=1)
    assert int(index.state.t) == 1


def test_late_answers_count_where_the_tool_is_still_there(task):
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


LEARNERS = {
    "greedy": jr.greedy(**SETTINGS),
    "mapped": jr.mapped(**SETTINGS),
    "low_rank": jr.low_rank(**SETTINGS, rank=4),
    "row_steps": jr.row_steps(**SETTINGS),
    "replayed": jr.centred_replayed(**SETTINGS),
    "adamw": jr.paper_adamw(tau=0.3, eta=0.01, batch=4),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_growing_keeps_all_that_is_learnt(small, name):
    """Every array that had the old number of rows has its old entries in the corner."""
    task, fresh = small(), small(items=40, seed=7).theta
    index = lived(jr.Index(LEARNERS[name], task), task)
    before = leaves(index)
    index.add([f"new_{n}" for n in range(20)], fresh[:20])
    after = leaves(index)
    grown = 0
    for old, new in zip(before, after, strict=True):
        corner = new[tuple(slice(0, n) for n in old.shape)]
        np.testing.assert_array_equal(corner, old)
        grown += old.shape != new.shape
    assert grown >= 2  # theta and available at least
    assert (len(index), len(index.ids)) == (32, 32)
    start = jr.Index(LEARNERS[name], task).learner.init(jnp.asarray(fresh[:20])).theta
    np.testing.assert_allclose(np.asarray(index.state.theta)[12:32], start, atol=1e-6)
    lived(index, task)
    assert all(np.isfinite(leaf).all() for leaf in leaves(index))


def test_an_index_that_grew_does_what_one_that_was_large_does(small):
    """Rows to spare change nothing: not what is shown, not what is learnt."""
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


def test_tools_go_come_back_and_are_refused_by_name(task):
    index = jr.Index(jr.greedy(**SETTINGS), task)
    index.remove(["tool_3", "tool_5"])
    assert (len(index), "tool_3" in index.ids) == (10, False)
    assert not {"tool_3", "tool_5"} & {*index.search(task.queries[0], k=12).ids}
    index.add(["tool_5", "more"], [task.theta[0], task.theta[1]])
    assert {"tool_5", "more"} < {*index.ids}
    refused = [
        (lambda: index.add(["more"], [task.theta[0]]), "'more' is there already: redescribe it"),
        (lambda: index.add(["a", "a"], task.theta[:2]), "ids must differ: 'a' stands at 0 and 1"),
        (
            lambda: index.add(["a"], task.theta[:2]),
            "the number of document vectors must be 1, got 2",
        ),
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
    """Of rows that are not of length 1, too: what the projection did to them was not learnt."""
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
    others = np.arange(12) != row
    np.testing.assert_array_equal(got[others], before[others])
    if how == "keep":
        np.testing.assert_array_equal(got, before)
    index.redescribe([task.ids[row]], [new], how="reset")
    np.testing.assert_allclose(np.asarray(index.state.theta)[row], new, atol=1e-6)


def test_texts_are_searched_added_and_described(tmp_path):
    encoder = tiny.encoder(tmp_path)
    task = jr.load_task("deskbank", encoder=encoder, cache=tmp_path / "cache")
    index = jr.Index(jr.greedy(), task)
    index.add(["abc"], ["a  b\nc d"])
    assert index.search("a b c d", k=169).scores[
        index.search("a b c d", k=169).ids.index("abc")
    ] == (pytest.approx(1.0, abs=1e-5))
    index.redescribe(["abc"], ["e f g"], how="reset")
    ticket = index.search("e f g", k=169)
    assert ticket.scores[ticket.ids.index("abc")] == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(ValueError, match="is empty"):
        index.search("  ")
    index.search(task.queries[0])  # vectors are welcome too


@pytest.mark.parametrize("name", LEARNERS)
def test_a_saved_index_goes_on_bit_for_bit(task, tmp_path, name):
    index = lived(jr.Index(LEARNERS[name], task), task)
    index.remove(["tool_2"])
    waiting = [index.search(task.queries[n], k=2) for n in (3, 4)]
    index.save(tmp_path / "index")
    other = jr.Index.load(tmp_path / "index")
    assert (other.ids, list(other.tickets)) == (index.ids, [6, 7])
    same(leaves(other), leaves(index))
    for one in (index, other):
        one.feedback(waiting[1], worked=1, item=waiting[1].ids[1])
        one.add(["new"], [task.theta[2]])
        lived(one, task)
    same(leaves(other), leaves(index))
    assert index.search(task.queries[0], k=12) == other.search(task.queries[0], k=12)
    other.save(tmp_path / "index")  # in place of the first
    assert jr.Index.load(tmp_path / "index").ids == other.ids
    assert len(list((tmp_path / "index").iterdir())) == 2


def test_a_rule_of_ones_own_must_be_given(task, tmp_path):
    rule = jr.with_query_map(jr.greedy(**SETTINGS), rate=1.0)
    index = lived(jr.Index(rule, task), task)
    index.save(tmp_path)
    with pytest.raises(ValueError, match=r"'greedy.linear' is no preset, and must be given: Index"):
        jr.Index.load(tmp_path)
    same(leaves(jr.Index.load(tmp_path, learner=rule)), leaves(index))
    with pytest.raises(ValueError, match=r"holds a state of 'greedy.linear', not of 'orag'"):
        jr.Index.load(tmp_path, learner=jr.orag())
    other = jr.with_query_map(jr.greedy(), jr.query_maps.low_rank(rank=2))._replace(name=rule.name)
    with pytest.raises(ValueError, match=r"holds another state than .* has: other settings"):
        jr.Index.load(tmp_path, learner=other)


def test_presets_are_made_again_as_they_were_and_no_others(task, tmp_path):
    """A preset whose parts were exchanged and renamed is a rule of one's own."""
    ball = jr.orag(tau=0.3, eta=0.5, projection=jr.ball(radius=2.0))
    index = lived(jr.Index(ball, task), task)
    index.save(tmp_path / "ball")
    other = jr.Index.load(tmp_path / "ball")
    same(leaves(lived(other, task)), leaves(lived(index, task)))
    renamed = jr.greedy()._replace(name="mine", update=jr.orag().update)
    jr.Index(renamed, task).save(tmp_path / "mine")
    with pytest.raises(ValueError, match="'mine' is no preset, and must be given"):
        jr.Index.load(tmp_path / "mine")
    tapered = jr.orag(schedule=jr.schedules.inverse_sqrt())
    jr.Index(tapered, task).save(tmp_path / "tapered")
    with pytest.raises(ValueError, match="'orag' is no preset, and must be given"):
        jr.Index.load(tmp_path / "tapered")
    assert jr.Index.load(tmp_path / "tapered", learner=tapered).learner is tapered


def test_a_damaged_folder_is_named(task, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no index.json: write it with index.save"):
        jr.Index.load(tmp_path)
    jr.Index(jr.greedy(), task).save(tmp_path)
    words, arrays = tmp_path / "index.json", next(tmp_path.glob("arrays-*.npz"))
    text, data = words.read_text(), arrays.read_bytes()
    without = json.dumps({k: v for k, v in json.loads(text).items() if k != "seed"})
    for file, content in (
        (words, text[:100]),
        (words, without),
        (arrays, data[:300]),
        (arrays, b""),
    ):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError, match="is damaged or of another version"):
            jr.Index.load(tmp_path)
        words.write_text(text)
        arrays.write_bytes(data)
    arrays.unlink()
    with pytest.raises(ValueError, match="is damaged or of another version"):
        jr.Index.load(tmp_path)


def test_an_interrupted_save_leaves_the_old_index(task, tmp_path, monkeypatch):
    index = jr.Index(jr.greedy(), task)
    index.save(tmp_path)
    index.search(task.queries[0])

    def full(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        index.save(tmp_path)
    assert jr.Index.load(tmp_path).next_ticket == 0


def test_a_slate_of_several_tools_is_shown_whole(task):
    index = jr.Index(jr.orag(**SETTINGS, k=3), task)
    with pytest.raises(ValueError, match="'orag' shows 3 tools: k must be as many"):
        index.search(task.queries[0])
    ticket = index.search(task.queries[0], k=5)
    assert len(set(ticket.ids)) == 5
    assert all(0 < p <= 1 for p in ticket.propensities[:3])
    assert all(math.isnan(p) for p in ticket.propensities[3:])
    before = leaves(index)
    with pytest.raises(ValueError, match=r"needs the chance of .*only what it chose itself"):
        index.feedback(ticket, worked=1, item=ticket.ids[4])
    same(leaves(index), before)
    index.feedback(ticket, worked=1, item=ticket.ids[2])
    few = jr.Index(jr.orag(**SETTINGS, k=3), task)
    few.remove(few.ids[2:])
    ticket = few.search(task.queries[0], k=3)
    assert sorted(ticket.ids) == ["tool_0", "tool_1"]


def test_an_oracle_cannot_serve(task):
    with pytest.raises(ValueError, match="'full_information' is an oracle: live use has no labels"):
        jr.Index(jr.full_information(), task)
