"""What is made one ahead."""

import threading

import pytest

from experiments.common.ahead import ahead


def test_the_next_is_made_while_one_is_used_and_no_more():
    made, second = [], threading.Event()

    def make(item):
        made.append(item)
        if item == 2:
            second.set()
        return 10 * item

    pairs = ahead(make, [1, 2, 3, 4])
    assert next(pairs) == (1, 10)
    assert second.wait(timeout=30)  # with nobody asking for it
    assert made == [1, 2]
    assert list(pairs) == [(2, 20), (3, 30), (4, 40)]
    assert list(ahead(make, [])) == []


def test_what_cannot_be_made_is_said_when_it_is_asked_for():
    def make(item):
        return 1 / item

    pairs = ahead(make, [1, 0, 2])
    assert next(pairs) == (1, 1.0)
    with pytest.raises(ZeroDivisionError):
        next(pairs)


def test_of_several_processes_none_makes_anything_ahead(monkeypatch):
    monkeypatch.setattr("jax.process_count", lambda: 2)
    made = []
    pairs = ahead(made.append, [1, 2])
    next(pairs)
    assert made == [1]
