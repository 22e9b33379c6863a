"""What a live index refuses, and what it takes as it is read again."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from tests.serving.indices import SETTINGS, leaves, same


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
