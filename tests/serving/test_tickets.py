"""Tickets: keys and JSON, expiry, an answer for each tool, confidence, and empty tickets."""

import json
import math
from functools import partial

import jax
import numpy as np
import pytest

import jaxret as jr
from jaxret.serving import index as index_module
from jaxret.serving.tickets import number_and_key
from tests.serving.indices import SETTINGS, leaves, same

LEARNER = jr.greedy(**SETTINGS)
MIXTURE = jr.mixture([jr.grid(jr.frozen, tau=[0.1, 0.5])])
CALIBRATED = [MIXTURE, jr.with_confidence(jr.orag(**SETTINGS))]


@pytest.fixture
def clock(monkeypatch):
    """Replace the time by a number that the test moves."""
    now = [1000.0]
    monkeypatch.setattr(index_module, "_now", lambda: now[0])
    return now


def test_a_ticket_and_its_key_survive_json_and_a_restart(task, tmp_path):
    index = jr.Index(LEARNER, task)
    tickets = [index.search(task.queries[n], k=3) for n in range(4)]
    index.feedback(tickets[3], worked=True)
    index.save(tmp_path)
    twin = jr.Index.load(tmp_path)
    text = tickets[0].to_json()
    assert jr.Ticket.from_json(text) == tickets[0] == jr.Ticket.from_json(json.loads(text))
    forms = [text, json.loads(text), tickets[0].key, tickets[0]]
    assert {number_and_key(one) for one in forms} == {(0, tickets[0].key)}
    twin.feedback(tickets[0].key, worked=True)
    twin.feedback(tickets[1].to_json(), worked=False)
    twin.feedback(json.loads(tickets[2].to_json()), worked=True, item=tickets[2].ids[1])
    twin.feedback(tickets[3].key, worked=True, item=tickets[3].ids[2])
    for ticket, item in zip(
        tickets, (None, None, tickets[2].ids[1], tickets[3].ids[2]), strict=True
    ):
        index.feedback(ticket, worked=ticket.number != 1, item=item)
    same(leaves(twin), leaves(index))


def test_unknown_propensities_are_null(task):
    ticket = jr.Index(jr.orag(**SETTINGS, k=3), task).search(task.queries[0], k=5)
    found = jr.Ticket.from_json(ticket.to_json())
    assert found.ids == ticket.ids
    assert [math.isnan(p) for p in found.propensities] == [False] * 3 + [True] * 2
    assert "NaN" not in ticket.to_json()


def test_every_tool_of_a_ticket_is_answered_once(task):
    index, one_by_one = jr.Index(LEARNER, task), jr.Index(LEARNER, task)
    ticket = index.search(task.queries[0], k=3)
    for n, item in enumerate(ticket.ids):
        index.feedback(ticket, worked=n == 1, item=item)
        one_by_one.feedback(one_by_one.search(task.queries[0], k=3), worked=n == 1, item=item)
        if n < 2:
            with pytest.raises(ValueError, match=f"it was answered before for '{item}'"):
                index.feedback(ticket, worked=True, item=item)
        assert (int(index.state.t), len(index.tickets)) == (n + 1, 0)
    same(leaves(index), leaves(one_by_one))
    with pytest.raises(ValueError, match=r"ticket 0 is not open: it was answered before$"):
        index.feedback(ticket, worked=True)


def test_the_oldest_tickets_expire_where_there_are_too_many(task):
    index = jr.Index(LEARNER, task, open_tickets=3)
    tickets = [index.search(task.queries[n], k=2) for n in range(6)]
    assert list(index.tickets) == [3, 4, 5]
    with pytest.raises(
        ValueError, match=r"ticket 2 is not open: it expired, since 3 later ones were open \(open_t"
    ):
        index.feedback(tickets[2], worked=True)
    for ticket in tickets[3:]:
        index.feedback(ticket, worked=True)
    later = [index.search(task.queries[n], k=2) for n in range(3)]
    index.feedback(tickets[3], worked=True, item=tickets[3].ids[1])  # kept beside the open ones
    for ticket in later:
        index.feedback(ticket, worked=True)
    with pytest.raises(ValueError, match="ticket 4 is not open: it expired"):
        index.feedback(tickets[4], worked=True, item=tickets[4].ids[1])


def test_tickets_expire_by_age_also_after_a_restart(task, tmp_path, clock):
    index = jr.Index(LEARNER, task, expire=60.0)
    old = index.search(task.queries[0])
    clock[0] += 50
    new = index.search(task.queries[1])
    index.save(tmp_path)
    clock[0] += 11
    for one in (index, jr.Index.load(tmp_path)):
        with pytest.raises(ValueError, match="it expired, as tickets do after 60 seconds"):
            one.feedback(old, worked=True)
        one.feedback(new, worked=True)
        assert int(one.state.t) == 1
    clock[0] += 100
    patient = jr.Index.load(tmp_path, expire=math.inf)
    patient.feedback(patient.search(task.queries[0]), worked=True)
    waiting = patient.search(task.queries[0])
    clock[0] += 1e9
    patient.feedback(waiting, worked=True)


def test_tickets_that_cannot_be_answered_have_their_own_lines(task, monkeypatch):
    monkeypatch.setattr("jaxret.serving.tickets.CLOSED", 2)
    index = jr.Index(LEARNER, task)
    tickets = [index.search(task.queries[n]) for n in range(4)]
    for ticket in tickets:
        index.feedback(ticket, worked=True)
    before = leaves(index)
    for given, message in (
        (tickets[3], "ticket 3 is not open: it was answered before"),
        (tickets[0].key, "ticket 0 is not open: it was answered, empty or expired long ago"),
        ("9-00", "ticket 9 is not open: this index has not given it, its tickets are the 4 from 0"),
        ("nonsense", "a ticket or its key is needed, got 'nonsense'"),
        (7, "a ticket or its key is needed, got 7"),
        ({"number": 3}, "a ticket must be the JSON that Ticket.to_json wrote"),
        ("{3", "a ticket must be the JSON that Ticket.to_json wrote"),
    ):
        with pytest.raises(ValueError, match=message):
            index.feedback(given, worked=True)
    other = jr.Index(LEARNER, task)
    theirs = other.search(task.queries[0])
    mine = index.search(task.queries[0])
    with pytest.raises(ValueError, match="ticket 4 comes from another index"):
        index.feedback(theirs._replace(number=mine.number), worked=True)
    same(leaves(index), before)
    for name in ("open_tickets", "expire"):
        with pytest.raises(ValueError, match=f"{name} must be >"):
            jr.Index(LEARNER, task, **{name: 0})


def test_many_queries_are_one_call(task):
    """Each has the ticket that it would have alone, up to rounding."""
    index, alone = jr.Index(LEARNER, task), jr.Index(LEARNER, task)
    for count in (1, 5, 60):
        rows = np.arange(count)
        tickets = index.search(task.queries[rows], k=3)
        for row, ticket in zip(rows, tickets, strict=True):
            expected = alone.search(task.queries[row], k=3)
            assert (ticket.number, ticket.ids) == (expected.number, expected.ids)
            np.testing.assert_allclose(ticket.scores, expected.scores, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(ticket.propensities, expected.propensities, rtol=1e-5)
    many = index.search(np.tile(task.queries, (3, 1)))  # more than one call of the program holds
    assert [ticket.number for ticket in many] == list(range(66, 66 + 180))
    index.feedback(many[150], worked=True)
    assert index.search([list(task.queries[0])])[0].number == 246  # lists of numbers
    assert index.search(list(task.queries[0])).number == 247
    with pytest.raises(ValueError, match="a list of one or more is needed"):
        index.search([])


def test_draws_of_many_queries_are_those_of_their_numbers(task):
    learner = jr.orag(**SETTINGS)
    index, alone = jr.Index(learner, task), jr.Index(learner, task)
    together = [ticket.ids for ticket in index.search(task.queries[:30])]
    assert together == [alone.search(one).ids for one in task.queries[:30]]
    assert len({ids[0] for ids in together}) > 3


@pytest.mark.parametrize("learner", CALIBRATED, ids=lambda one: one.name)
def test_the_confidence_of_a_ticket_is_that_of_its_first_tool(task, learner):
    index = jr.Index(learner, task)
    sure = jax.jit(partial(jr.confidence, learner))
    for n in range(12):
        p = np.asarray(sure(index.state, task.queries[n]))
        ticket = index.search(task.queries[n], k=3)
        assert ticket.confidence == pytest.approx(p[task.ids.index(ticket.ids[0])], rel=1e-5)
        index.feedback(ticket, worked=n % 2)
    assert jr.Index(jr.greedy(**SETTINGS), task).search(task.queries[0]).confidence is None


def test_below_the_threshold_a_ticket_is_empty_and_closed(task, tmp_path):
    log = tmp_path / "log.jsonl"
    index = jr.Index(MIXTURE, task, log=log)
    full = index.search(task.queries[0])
    before = leaves(index)
    edge = full.confidence
    empty = index.search(task.queries[0], k=3, at_least=edge + 1e-4)
    assert empty._replace(key="") == jr.Ticket(full.number + 1, [], [], [], "", edge)
    assert jr.Ticket.from_json(empty.to_json()) == empty
    same(leaves(index), before)
    with pytest.raises(
        ValueError, match=f"ticket {empty.number} is not open: it is empty, no tool"
    ):
        index.feedback(empty, worked=0)
    shown = index.search(task.queries[0], at_least=edge - 1e-4)
    assert shown.ids == full.ids
    assert shown.number == empty.number + 1
    index.save(tmp_path / "index")
    last = index.search(task.queries[0], at_least=1.0)
    index.close()
    again = jr.Index.load(tmp_path / "index", MIXTURE)
    assert [*again.tickets] == [full.number, shown.number]
    with pytest.raises(ValueError, match=f"ticket {last.number} is not open: it is empty"):
        again.feedback(last.key, worked=0)
    assert again.search(task.queries[0], at_least=1.0).number == last.number + 1
    assert len(jr.load_log(log, task).confidence) == 2


def test_a_threshold_needs_a_confidence(task):
    index = jr.Index(jr.greedy(**SETTINGS), task)
    with pytest.raises(ValueError, match=r"'greedy' does not say .*jr.with_confidence"):
        index.search(task.queries[0], at_least=0.5)
    with pytest.raises(ValueError, match=r"at_least must be in \[0, 1\], got 50"):
        jr.Index(MIXTURE, task).search(task.queries[0], at_least=50)
    assert index.tickets == {}
