"""Many threads share an index: every answer is learnt and logged, and results are not mixed up."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import jaxret as jr
from tests.problems import make_task
from tests.serving.indices import SETTINGS, leaves, same
from tests.slow import slowly

LEARNER = jr.greedy(**SETTINGS)
THOUSANDS = [(True, 625), (False, 625)]


def together(work, threads=16):
    """Run a function of a thread's number in every thread; raise what any of them raises."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


@pytest.mark.parametrize(("logged", "each"), [(True, 125), *slowly(THOUSANDS, THOUSANDS)])
def test_sixteen_threads_answer_thousands_of_tickets(tmp_path, logged, each):
    count = 16 * each
    task = make_task(queries=200)
    log = tmp_path / "log.jsonl" if logged else None
    index = jr.Index(LEARNER, task, log=log)
    if logged:
        index.save(tmp_path / "index")

    def work(thread):
        given = []
        for start in range(0, each, 25):
            rows = (np.arange(start, start + 25) * 16 + thread) % len(task)
            for row, ticket in zip(rows, index.search(task.queries[rows]), strict=True):
                right = task.ids[task.labels[row, 0]]
                index.feedback(ticket, worked=ticket.ids[0] == right)
                given.append(ticket.number)
        return given

    numbers = [number for given in together(work) for number in given]
    assert sorted(numbers) == list(range(count))
    assert int(index.state.t) == index.next_ticket == count
    assert not index.tickets
    if not logged:
        return
    found = jr.load_log(log, task)
    assert (found.rounds, np.isnan(found.reward).sum()) == (count, 0)
    np.testing.assert_array_equal(found.round, range(count))
    index.close()
    again = jr.Index.load(tmp_path / "index")  # the answers in the order of the log
    assert int(again.state.t) == count
    same(leaves(again), leaves(index))


def test_an_answer_is_of_the_ticket_that_it_names_whatever_other_threads_do(task):
    """A search shows what it would show alone while nobody answers."""
    index, alone = jr.Index(LEARNER, task), jr.Index(LEARNER, task)
    expected = [alone.search(one, k=3).ids for one in task.queries]
    found = together(lambda _: [index.search(one, k=3).ids for one in task.queries])
    assert all(one == expected for one in found)


def test_texts_are_encoded_outside_of_the_lock(task):
    """A slow encoder does not hold up other threads."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(texts):
        begun.set()
        assert go_on.wait(60)
        return np.eye(8, dtype=np.float32)[[len(text) for text in texts]]

    index = jr.Index(LEARNER, replace(task, encoder=slow))
    with ThreadPoolExecutor(2) as pool:
        searching = pool.submit(index.search, "abc")
        adding = pool.submit(index.add, ["text"], ["abcde"])
        assert begun.wait(60)
        index.feedback(index.search(task.queries[0]), worked=True)
        index.remove(["tool_3"])
        go_on.set()
        assert searching.result().number == 1
        adding.result()
    assert (int(index.state.t), len(index)) == (1, 12)


def test_tools_come_and_go_while_others_search(task):
    index = jr.Index(LEARNER, task)

    def work(thread):
        for n in range(3):
            name = f"new_{thread}_{n}"
            index.add([name], task.theta[thread : thread + 1])
            ticket = index.search(task.queries[thread], k=2)
            index.feedback(ticket, worked=n % 2, item=ticket.ids[1])
            index.remove([name])

    together(work, threads=6)
    assert (len(index), len(index.names), int(index.state.t)) == (12, 12 + 18, 18)
    assert len({*index.names}) == len(index.names)
    assert np.isfinite(index.state.theta).all()


def test_a_save_is_of_one_moment_while_others_answer(task, tmp_path):
    index = jr.Index(LEARNER, task, log=tmp_path / "log.jsonl")
    stop = threading.Event()

    def answer(thread):
        while not stop.is_set():
            index.feedback(index.search(task.queries[thread]), worked=thread % 2)

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(answer, thread) for thread in range(4)]
        for _ in range(5):
            index.save(tmp_path / "index")
        stop.set()
        for one in running:
            one.result()
    loaded = jr.Index.load(tmp_path / "index")  # and what the log has after the last save
    assert loaded.next_ticket == index.next_ticket
    same(leaves(loaded), leaves(index))
