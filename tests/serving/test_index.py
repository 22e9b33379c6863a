"""The live loop of an index: probabilities by enumeration, tickets, and what is refused."""

import json
import math
import signal
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.types import Choice, Feedback
from tests.serving.indices import SETTINGS, leaves, same

jitted = cache(jax.jit)


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
    """Any item may come first, by the learner's probabilities; the rest follows by score."""
    task = small(items=6)
    index = jr.Index(learner, task)
    query = task.queries[0]
    probabilities = np.asarray(jitted(learner.probabilities)(index.state, query), np.float64)
    best_first = np.argsort(-(task.theta @ query), kind="stable")
    listed = np.zeros(6)
    for first in range(6):
        rest = [row for row in best_first if row != first][: k - 1]
        listed[[first, *rest]] += probabilities[first]
    firsts = set()
    for _ in range(40):
        ticket = index.search(query, k=k)
        rows = [task.ids.index(one) for one in ticket.ids]
        firsts.add(rows[0])
        assert rows[1:] == [row for row in best_first if row != rows[0]][: k - 1]
        assert ticket.propensities[0] == pytest.approx(probabilities[rows[0]], rel=1e-5)
        np.testing.assert_allclose(ticket.propensities[1:], listed[rows[1:]], rtol=1e-5)
        np.testing.assert_allclose(ticket.scores, (task.theta @ query)[rows], rtol=1e-5)
    assert len(ticket.ids) == min(k, 6)
    assert len(firsts) > 1 or learner.name == "greedy"


def test_feedback_is_one_update_of_the_learner(task):
    learner = jr.orag(**SETTINGS)
    index = jr.Index(learner, task)
    ticket = index.search(task.queries[0], k=3)
    before = index.state
    index.feedback(ticket, worked=0.25, item=ticket.ids[2])
    choice = Choice(np.int32(task.ids.index(ticket.ids[2])), np.float32(ticket.propensities[2]))
    feedback = Feedback(np.float32(0.25), np.bool_(True))
    after = jax.jit(learner.update)(before, task.queries[0], choice, feedback)
    np.testing.assert_allclose(index.state.theta, after.theta, atol=1e-6)
    assert np.abs(np.asarray(after.theta) - np.asarray(before.theta)).max() > 1e-4
    assert repr(index) == "<index of orag: 12 tools, 1 answers, 0 open tickets>"


@pytest.mark.parametrize(
    "learner",
    [jr.greedy(), jr.mixture([jr.grid(jr.greedy, tau=[0.1, 0.5])]), jr.centred_replayed()],
    ids=lambda learner: learner.name,
)
@pytest.mark.parametrize("allowed", [None, ["tool_2", "tool_3"]])
def test_feedback_overwrites_the_state_and_nothing_else(task, learner, allowed):
    """Neither the task, whose arrays the first state could share, nor states that were read."""
    theta = jnp.array(task.theta)
    index = jr.Index(learner, replace(task, theta=theta))
    before = index.state
    copies, rows = [np.array(x) for x in jax.tree.leaves(before)], index._state.theta
    places = {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(index._state)}
    for _ in range(2):  # the second state has the arrays that the first update returned
        index.feedback(index.search(task.queries[0], k=2, allowed=allowed), worked=True)
    assert rows.is_deleted()
    large = [leaf for leaf in jax.tree.leaves(index._state) if leaf.size >= theta.size]
    assert large
    assert {leaf.unsafe_buffer_pointer() for leaf in large} <= places
    np.testing.assert_array_equal(theta, task.theta)
    for leaf, copy in zip(jax.tree.leaves(before), copies, strict=True):
        np.testing.assert_array_equal(leaf, copy)


def test_what_cannot_be_learnt_is_not_logged(task, tmp_path):
    """The state is overwritten after the line is written: errors come before both."""

    def update(state, query, choice, feedback):
        raise TypeError("a mistake in a rule")

    broken = jr.greedy()._replace(update=update)
    index = jr.Index(broken, task, log=tmp_path / "log.jsonl")
    ticket = index.search(task.queries[0])
    for _ in range(2):
        with pytest.raises(TypeError, match="a mistake in a rule"):
            index.feedback(ticket, worked=True)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert not any("item" in json.loads(line) for line in lines)
    assert list(index.tickets) == [0]


@pytest.fixture
def ctrl_c():
    """Handle Ctrl-C as in a terminal; background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("logged", [False, True])
def test_ctrl_c_waits_until_the_answer_is_complete(task, tmp_path, monkeypatch, logged):
    """Between the line and the update an interrupt would lose the one or the other."""
    index = jr.Index(jr.greedy(), task, log=tmp_path / "log.jsonl" if logged else None)
    index.save(tmp_path / "index")
    update = index._update

    def interrupted(*lesson):
        signal.raise_signal(signal.SIGINT)
        new = update(*lesson)
        signal.raise_signal(signal.SIGINT)
        return new

    ticket = index.search(task.queries[0], k=2)
    index.feedback(ticket, worked=True)
    monkeypatch.setattr(index, "_update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.feedback(ticket, worked=False, item=ticket.ids[1])
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert int(index.state.t) == 2
    with pytest.raises(ValueError, match="answered before"):
        index.feedback(ticket, worked=False, item=ticket.ids[1])
    index.feedback(index.search(task.queries[1]), worked=True)
    if logged:
        index.close()
        same(leaves(jr.Index.load(tmp_path / "index")), leaves(index))


def test_an_unknown_probability_may_be_kept_where_it_is_not_used(task):
    """Replay buffers store it, and only some estimators read it."""
    index = jr.Index(jr.abstaining(jr.with_confidence(jr.greedy_replayed()), at_least=0.0), task)
    ticket = index.search(task.queries[0], k=3)
    assert math.isnan(ticket.propensities[2])
    for worked, item in enumerate(ticket.ids[:0:-1]):
        index.feedback(ticket, worked, item)
    assert int(index.state.t) == 2
    assert np.isfinite(index.state.theta).all()
    index = jr.Index(jr.abstaining(jr.with_confidence(jr.orag(**SETTINGS)), at_least=0.0), task)
    ticket = index.search(task.queries[0], k=3)
    before = leaves(index)
    with pytest.raises(ValueError, match="needs the probability of"):
        index.feedback(ticket, True, ticket.ids[2])
    same(leaves(index), before)


def test_a_rule_that_fails_for_more_tools_is_not_logged_either(task, tmp_path):
    plain = jr.greedy()

    def update(state, query, choice, feedback):
        if len(state.theta) > 12:
            raise TypeError("a mistake in a rule")
        return plain.update(state, query, choice, feedback)

    index = jr.Index(plain._replace(update=update), task, log=tmp_path / "log.jsonl")
    index.feedback(index.search(task.queries[0]), worked=True)
    index.add(["another"], [task.theta[0]])
    with pytest.raises(TypeError, match="a mistake in a rule"):
        index.feedback(index.search(task.queries[0]), worked=True)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert sum("item" in json.loads(line) for line in lines) == 1


def test_tools_that_cannot_be_added_leave_the_catalogue_as_it_was(task, monkeypatch):
    index = jr.Index(jr.greedy(), task)

    def failing(needed):
        raise MemoryError

    monkeypatch.setattr(index, "_grow", failing)
    with pytest.raises(MemoryError):
        index.add(["another"], [task.theta[0]])
    monkeypatch.undo()
    assert len(index.names) == len(index.texts) == 12
    index.add(["another"], [task.theta[0]])
    assert index.search(task.theta[0], allowed=["another"]).ids == ["another"]


def test_a_tool_that_works_comes_first(task):
    index = jr.Index(jr.greedy(tau=0.1, eta=0.05), task)
    wanted = index.search(task.queries[3], k=12).ids[4]
    for _ in range(100):
        ticket = index.search(task.queries[3])
        index.feedback(ticket, worked=ticket.ids[0] == wanted)
    assert index.search(task.queries[3]).ids == [wanted]


def test_refused_feedback_changes_nothing_and_leaves_the_ticket_open(task):
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
        *(
            (ticket, {"worked": worked}, rf"worked must be in \[0, 1\], got {worked}")
            for worked in (math.nan, math.inf, 1.5, -0.1)
        ),
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


def test_a_slate_of_several_tools_is_shown_whole(task):
    index = jr.Index(jr.orag(**SETTINGS, k=3), task)
    with pytest.raises(ValueError, match="'orag' shows 3 tools: k must be as many"):
        index.search(task.queries[0])
    ticket = index.search(task.queries[0], k=5)
    assert len(set(ticket.ids)) == 5
    assert all(0 < p <= 1 for p in ticket.propensities[:3])
    assert all(math.isnan(p) for p in ticket.propensities[3:])
    before = leaves(index)
    with pytest.raises(ValueError, match=r"needs the probability of .*feedback on its own"):
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


def test_a_learner_that_abstains_gives_empty_tickets(task, tmp_path):
    learner = jr.abstaining(jr.mixture([jr.grid(jr.frozen, tau=[0.1, 0.5])]), at_least=1.0)
    index = jr.Index(learner, task, log=tmp_path / "log.jsonl")
    index.save(tmp_path / "index")
    for ticket in (index.search(task.queries[0], k=3), *index.search(task.queries[:2], k=3)):
        assert (ticket.ids, ticket.scores, ticket.confidence) == ([], [], None)
        with pytest.raises(ValueError, match=f"{ticket.number} is not open: it is empty"):
            index.feedback(ticket, worked=True)
    index.close()
    assert jr.Index.load(tmp_path / "index", learner).next_ticket == 3


def test_a_mask_may_be_a_jax_array_and_ids_occur_once(task):
    index = jr.Index(jr.greedy(**SETTINGS), task)
    mask = np.arange(len(index)) < 2
    found = [index.search(task.queries[0], k=5, allowed=one).ids for one in (mask, jnp.array(mask))]
    assert sorted(found[0]) == sorted(found[1]) == index.ids[:2]
    with pytest.raises(ValueError, match="ids must differ"):
        index.redescribe(["tool_1", "tool_1"], task.theta[:2])


def test_a_graded_reward_is_replayed_bit_for_bit(task, tmp_path):
    index = jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "log.jsonl")
    index.save(tmp_path / "index")
    for n, reward in enumerate((0.99999997025, 1 / 3, np.float32(0.1), 2e-9)):
        index.feedback(index.search(task.queries[n]), worked=reward)
    index.close()
    again = jr.Index.load(tmp_path / "index")
    same(leaves(again), leaves(index))
    again.close()
    with pytest.raises(ValueError, match="open_tickets must be >= 1, got 0"):
        jr.Index.load(tmp_path / "index", open_tickets=0)


def test_a_later_index_on_the_same_log_begins_with_the_catalogue(task, tmp_path):
    log = tmp_path / "log.jsonl"
    first = jr.Index(jr.greedy(**SETTINGS), task, log=log)
    first.remove(["tool_3"])
    first.add(["new"], task.theta[:1])
    first.search(task.queries[0])
    first.close()
    second = jr.Index(jr.greedy(**SETTINGS), task, log=log)
    ticket = second.search(task.queries[0])
    second.feedback(ticket, worked=True)
    second.close()
    read = jr.load_log(log, task)
    shown = read.sets[read.shown_from]
    places = [task.ids.index("tool_3"), len(task.ids)]
    np.testing.assert_array_equal(shown[:, places], [[False, True], [True, False]])
    assert ticket.number == 1


def test_a_preset_that_was_not_called_is_refused_before_texts_are_encoded(task, tmp_path):
    with pytest.raises(ValueError, match=r"got the function greedy: call it, greedy\(\)"):
        jr.Index(jr.greedy, task)
    jr.Index(jr.greedy(), task).save(tmp_path)
    with pytest.raises(ValueError, match=r"got the function greedy: call it, greedy\(\)"):
        jr.Index.load(tmp_path, jr.greedy)
    tools = [{"name": "book", "description": "books a table"}]
    with pytest.raises(ValueError, match=r"got the function greedy: call it, greedy\(\)"):
        jr.Index.from_tools(tools, jr.greedy, encoder=lambda texts: pytest.fail("encodes"))
