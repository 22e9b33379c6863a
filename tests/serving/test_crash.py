"""An index that is killed at any moment loses nothing that was acknowledged."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import jaxret as jr
from jaxret import logs
from jaxret.logs import LogWriter
from tests.serving.indices import LEARNERS, SETTINGS, leaves, lived, same
from tests.serving.living import live

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def start():
    """Return a function that starts `live` in a fork of a process that has imported everything.

    It returns the process and the connection on which the process reports.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.serving.living"])

    def started(*args):
        reports, report = context.Pipe(duplex=False)
        living = context.Process(target=live, args=(report, *args), daemon=True)
        living.start()
        report.close()
        return living, reports

    return started


def reported(reports):
    """Return everything that a process reports until it ends; the last report may be cut."""
    found = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            found.append(reports.recv())
    return found


def killed(living, reports, after):
    """Kill a process some seconds after it has begun; return what it acknowledged."""
    begun = reports.recv()
    timer = threading.Timer(after, os.kill, (living.pid, signal.SIGKILL))
    timer.start()
    acknowledged = reported(reports)
    timer.join()
    living.join()
    assert living.exitcode == -signal.SIGKILL
    return begun, acknowledged


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_a_life_with_kills_is_the_life_without(tmp_path, start, kills):
    rng, answers, numbers = np.random.default_rng(0), 0, []
    for _ in range(kills):
        life = start(tmp_path, 10**6)
        (kind, t, next_ticket), acknowledged = killed(*life, after=rng.exponential(0.3))
        assert kind == "begun"
        assert t >= answers  # no answer was lost
        assert not numbers or next_ticket > max(numbers)  # no ticket number is given twice
        numbers += [n for kind, n in acknowledged if kind == "search"]
        answers = max([t, *(n for kind, n in acknowledged if kind == "answer")])
    assert numbers == sorted({*numbers})
    assert answers >= kills
    lives = [(tmp_path, "interrupted.npz"), (tmp_path / "whole", "whole.npz")]
    (tmp_path / "whole").mkdir()
    for folder, name in lives:
        _, reports = start(folder, answers + 20, tmp_path / name)
        assert reported(reports)[-1] == ("done",)
    interrupted, whole = (np.load(tmp_path / name) for _, name in lives)
    assert {*interrupted.files} == {*whole.files}
    for name in whole.files:
        np.testing.assert_array_equal(interrupted[name], whole[name])
    task_rounds = jr.load_log(tmp_path / "log.jsonl", interrupted["names"].tolist()).rounds
    assert task_rounds == answers + 20 == int(whole["given"])


def test_another_process_is_refused_while_one_writes(tmp_path, start):
    living, reports = start(tmp_path, 10**6)
    assert reports.recv()[0] == "begun"
    learner = jr.with_exploration(jr.greedy(tau=0.1, eta=0.05), 0.2)
    try:
        message = r"log.jsonl is written by another process: a log has one writer, so end that pr"
        with pytest.raises(ValueError, match=message):
            jr.Index.load(tmp_path / "index", learner=learner)
        with pytest.raises(ValueError, match=message):
            LogWriter(tmp_path / "log.jsonl", {"learner": learner.name})
        mine = jr.Index.load(tmp_path / "index", learner=learner, log=tmp_path / "mine.jsonl")
        with pytest.raises(ValueError, match="index is written by another process: a folder of an"):
            mine.save(tmp_path / "index")
    finally:
        living.kill()
        living.join()
    mine.save(tmp_path / "index")  # the dead do not block


@pytest.mark.parametrize("name", ["greedy", "replayed", "adamw"])
def test_the_log_since_the_save_is_done_again(task, tmp_path, name):
    """Also answers to tickets of before the save, several answers, and the catalogue."""
    index = jr.Index(LEARNERS[name], task, log=tmp_path / "log.jsonl", open_tickets=5)
    before = [index.search(task.queries[n], k=3) for n in range(2)]
    index.save(tmp_path / "index")
    lived(index, task)
    index.feedback(before[0], worked=1, item=before[0].ids[2])
    index.add(["new", "other"], task.queries[:2])
    index.remove(["tool_4", "other"])
    index.redescribe(["tool_3"], [task.queries[5]], how="carry")
    some = index.search(task.queries[2], k=4, allowed=["new", "tool_3", "tool_7"])
    index.feedback(some, worked=1, item=some.ids[1])
    index.feedback(before[0], worked=0, item=before[0].ids[0])
    waiting = index.search(task.queries[:8], k=2)  # more than may be open
    index.close()
    other = jr.Index.load(tmp_path / "index")
    same(leaves(other), leaves(index))
    np.testing.assert_array_equal(other.starts, index.starts)
    assert (other.names, other.next_ticket) == (index.names, index.next_ticket)
    assert {**other._open.closed} == {**index._open.closed}
    assert [*other.tickets] == [*index.tickets] == [ticket.number for ticket in waiting[3:]]
    for one in (index._open.waiting, index._open.partly):
        theirs = other._open.waiting if one is index._open.waiting else other._open.partly
        for number, ticket in one.items():
            again = theirs[number]
            assert again._replace(query=None, allowed=None) == ticket._replace(
                query=None, allowed=None, propensities=again.propensities
            )
            np.testing.assert_array_equal(
                np.float32(again.propensities), np.float32(ticket.propensities)
            )
            np.testing.assert_array_equal(again.query, ticket.query)
    other.feedback(waiting[5].key, worked=1)
    index.log = None
    index.feedback(waiting[5].key, worked=1)
    same(leaves(other), leaves(index))


def test_a_set_that_was_named_before_the_save_is_known_after_it(task, tmp_path):
    index = jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "log.jsonl")
    allowed = list(task.ids[:4])
    index.feedback(index.search(task.queries[0], allowed=allowed), worked=True)
    index.save(tmp_path / "index")
    waiting = index.search(task.queries[1], allowed=allowed)  # does not name it again
    index.close()
    other = jr.Index.load(tmp_path / "index")
    index.log = None
    for one in (index, other):
        one.feedback(waiting.key, worked=True)
    same(leaves(other), leaves(index))
    other.close()
    alone = jr.Index.load(tmp_path / "index", log=tmp_path / "new.jsonl")
    alone.search(task.queries[1], allowed=allowed)  # names it in the new log
    log = jr.load_log(tmp_path / "new.jsonl", task)
    assert log.sets[log.shown_from].sum() == 4


def test_a_log_that_moved_is_found_and_one_of_another_index_refused(task, tmp_path):
    index = lived(jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "log.jsonl"), task)
    index.save(tmp_path / "index")
    lived(index, task)
    index.close()
    (tmp_path / "log.jsonl").rename(tmp_path / "moved.jsonl")
    other = jr.Index.load(tmp_path / "index", log=tmp_path / "moved.jsonl")
    same(leaves(other), leaves(index))
    other.close()
    theirs = lived(jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "theirs.jsonl"), task)
    theirs.close()
    with pytest.raises(ValueError, match=r"theirs.jsonl does not continue this index, which was s"):
        jr.Index.load(tmp_path / "index", log=tmp_path / "theirs.jsonl")
    again = jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "moved.jsonl")
    assert again.search(task.queries[0]).number == 12  # numbers go on
    again.close()
    with pytest.raises(ValueError, match=r"line \d+ of the log begins another index"):
        jr.Index.load(tmp_path / "index", log=tmp_path / "moved.jsonl")
    alone = jr.Index.load(tmp_path / "index", log=tmp_path / "new.jsonl")
    assert int(alone.state.t) == 6
    alone.close()
    with pytest.warns(UserWarning, match=r"log\.jsonl is missing, and answers after the save"):
        assert int(jr.Index.load(tmp_path / "index").state.t) == 6


def test_a_full_disk_leaves_a_whole_log_and_an_unchanged_index(task, tmp_path, monkeypatch):
    index = jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "log.jsonl", fsync=True)
    ticket, before = index.search(task.queries[0]), leaves(index)
    size = (tmp_path / "log.jsonl").stat().st_size

    def full(*args):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(logs.os, "fsync", full)
        for call in (
            lambda: index.feedback(ticket, worked=True),
            lambda: index.search(task.queries[1], allowed=task.ids[:3]),
            lambda: index.add(["new"], task.theta[:1]),
        ):
            with pytest.raises(OSError, match="no space left"):
                call()
    assert (tmp_path / "log.jsonl").stat().st_size == size
    same(leaves(index), before)
    assert (index.next_ticket, len(index)) == (1, 12)
    index.feedback(ticket, worked=True)
    index.search(task.queries[1], allowed=task.ids[:3])
    log = jr.load_log(tmp_path / "log.jsonl", task)
    assert log.reward[0] == 1
    assert log.sets[log.shown_from][1].sum() == 3


def test_lines_are_written_before_a_call_returns_and_synced_by_option(task, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(logs.os, "fsync", lambda number: synced.append(number))
    for fsync in (False, True):
        path = tmp_path / f"{fsync}.jsonl"
        index = jr.Index(jr.greedy(**SETTINGS), task, log=path, fsync=fsync)
        ticket = index.search(task.queries[0])
        assert jr.load_log(path, task).rounds == 1
        index.feedback(ticket, worked=True)
        assert jr.load_log(path, task).reward[0] == 1
    assert len(synced) == 4  # header, begin, search, answer


def test_the_lock_ends_with_its_owner(task, tmp_path):
    """Ending the object is enough; the file of the lock stays."""
    index = jr.Index(jr.greedy(**SETTINGS), task, log=tmp_path / "log.jsonl")
    program = f"""
from pathlib import Path
from jaxret.logs import LogWriter

for _ in range(2):  # before and after a line is read
    try:
        LogWriter(Path({str(tmp_path / "log.jsonl")!r}), {{"learner": "greedy"}})
        print("owned", flush=True)
    except ValueError as error:
        print(error, flush=True)
        input()
"""
    run = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(run, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert "is written by another process" in other.stdout.readline()
        del index
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "owned\n"
