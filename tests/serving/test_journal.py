"""The log of an index: rounds, answers and tools as they come, and continuation after loading."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from jaxret.logs import LogWriter
from tests.serving.indices import SETTINGS, leaves, same


def test_searches_and_feedback_are_logged(task, tmp_path):
    index = jr.Index(jr.orag(**SETTINGS), task, log=tmp_path / "log.jsonl")
    tickets = [index.search(task.queries[n], k=n % 3 + 1) for n in range(4)]
    index.feedback(tickets[2], worked=0.5, item=tickets[2].ids[1])
    index.feedback(tickets[0], worked=True)
    last = index.search(task.queries[4])
    log = jr.load_log(tmp_path / "log.jsonl", task)
    np.testing.assert_array_equal(log.query, task.queries[:5])
    np.testing.assert_array_equal(log.round, range(5))
    np.testing.assert_array_equal(log.version, [0, 0, 0, 0, 2])
    np.testing.assert_array_equal(log.reward, [1, np.nan, 0.5, np.nan, np.nan])
    for t, ticket in enumerate([*tickets, last]):
        assert [task.ids[row] for row in log.slate[t] if row >= 0] == ticket.ids
        np.testing.assert_allclose(log.by_position[t], [ticket.propensities[0], 1, 1], rtol=1e-6)
    assert task.ids[log.item[2]] == tickets[2].ids[1]
    assert log.propensity[2] == pytest.approx(tickets[2].propensities[1], rel=1e-6)


def test_a_learner_of_slates_logs_the_probability_of_each_position(task, tmp_path):
    learner = jr.orag(tau=0.2, eta=0.0, k=3)
    index = jr.Index(learner, task, log=tmp_path / "log.jsonl")
    for n in range(5):
        index.search(task.queries[n], k=4)
    log = jr.load_log(tmp_path / "log.jsonl", task)
    z = np.exp(np.float64(task.queries[:5]) @ np.float64(task.theta).T / 0.2)
    p = np.take_along_axis(z / z.sum(axis=1, keepdims=True), log.slate[:, :3], axis=1)
    np.testing.assert_allclose(
        log.by_position[:, :3], p / (1 - np.cumsum(p, axis=1) + p), rtol=1e-4
    )
    np.testing.assert_array_equal(log.by_position[:, 3], 1)
    index = jr.Index(jr.greedy(k=2), task, log=tmp_path / "unknown.jsonl")
    index.search(task.queries[0], k=2)
    assert np.isnan(jr.load_log(tmp_path / "unknown.jsonl", task).by_position).all()


def test_a_loaded_index_continues_its_log(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    index = jr.Index(jr.orag(**SETTINGS), task, log="log.jsonl")
    waiting = index.search(task.queries[0])
    index.save("index")
    monkeypatch.chdir("/")  # the log is found from any directory
    other = jr.Index.load(tmp_path / "index")
    other.feedback(waiting, worked=True)
    other.search(task.queries[1])
    log = jr.load_log(tmp_path / "log.jsonl", task)
    np.testing.assert_array_equal(log.reward, [1, np.nan])
    # A log has one writer: the index that notices a second one stops and changes nothing.
    before = leaves(index)
    with pytest.raises(ValueError, match="was written to by another: a log has one writer"):
        index.feedback(waiting, worked=True)
    with pytest.raises(ValueError, match="a log has one writer"):
        index.search(task.queries[0])
    same(leaves(index), before)
    assert (index.next_ticket, [*index.tickets]) == (1, [0])
    elsewhere = jr.Index.load(tmp_path / "index", log=tmp_path / "second.jsonl")
    elsewhere.feedback(waiting, worked=True)
    elsewhere.search(task.queries[2])
    with pytest.warns(UserWarning, match="1 answers to rounds that the log does not show"):
        assert jr.load_log(tmp_path / "second.jsonl", task).rounds == 1


def test_the_log_of_another_learner_is_refused(task, tmp_path):
    jr.Index(jr.orag(**SETTINGS), task, log=tmp_path / "log.jsonl")
    with pytest.raises(ValueError, match=r"is the log of something else .*orag"):
        jr.Index(jr.greedy(), task, log=tmp_path / "log.jsonl")


def test_an_index_without_a_log_writes_none(task, tmp_path, monkeypatch):
    def append(*args):
        raise AssertionError("a line was written without a log")

    monkeypatch.setattr(LogWriter, "append", append)
    index = jr.Index(jr.greedy(), task)
    index.feedback(index.search(task.queries[0]), worked=True)
    index.save(tmp_path)
    loaded = jr.Index.load(tmp_path)
    assert loaded.log is None
    loaded.search(jnp.asarray(task.queries[0]))


@pytest.mark.parametrize("reset", [False, True])
def test_a_tool_that_came_back_is_the_same_after_a_crash(task, tmp_path, reset):
    index = jr.Index(jr.greedy(tau=0.3, eta=0.1), task, log=tmp_path / "log.jsonl")
    index.save(tmp_path / "index")
    ticket = index.search(task.queries[0])
    (used,) = ticket.ids
    row = index.names.index(used)
    start = np.array(index.state.theta[row])
    index.feedback(ticket, worked=True)
    learnt = np.array(index.state.theta[row])
    assert abs(learnt - start).max() > 1e-4
    index.remove([used])
    index.add([used, "new"], [task.theta[row], task.theta[1]], reset=reset)
    np.testing.assert_allclose(index.state.theta[row], start if reset else learnt, atol=1e-6)
    index.close()
    again = jr.Index.load(tmp_path / "index")
    same(leaves(again), leaves(index))
    assert again.names == index.names
