"""Tickets with a confidence, and searches that return no tool."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from tests.serving.indices import SETTINGS, leaves, same

MIXTURE = jr.mixture([jr.grid(jr.frozen, tau=[0.1, 0.5])])
CALIBRATED = [MIXTURE, jr.with_confidence(jr.orag(**SETTINGS))]


@pytest.mark.parametrize("learner", CALIBRATED, ids=lambda one: one.name)
def test_the_confidence_of_a_ticket_is_that_of_its_first_tool(task, learner):
    index = jr.Index(learner, task)
    for n in range(12):
        p = np.asarray(jr.confidence(learner, index.state, jnp.asarray(task.queries[n])))
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
