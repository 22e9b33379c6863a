"""Vowpal Wabbit as an external baseline: its examples, and streams with a fake and the real one."""

import numpy as np
import pytest

import jaxret as jr
from experiments.benchmarks import vowpal_wabbit as vw

EYE = np.eye(3, dtype=np.float32)


class Remembers:
    """A fake workspace: always ranks one tool first, and records the examples it receives."""

    def __init__(self):
        self.lessons, self.finished = [], False

    def learn(self, text):
        self.lessons.append(text)

    def predict(self, text):
        assert ":-1:" not in text, "what is right must not be said before it is shown"
        return [0.0, 1.0, 0.0]

    def finish(self):
        self.finished = True


@pytest.fixture
def task():
    return jr.Task.from_arrays(EYE, EYE[[1, 1, 0]], np.array([1, 1, 0]), name="three")


def test_an_example_names_query_tools_and_the_cosine_of_each():
    lines = vw.example(EYE, np.array([0.6, 0.8, 0.0], np.float32), 1, -1.0, 0.5).split("\n")
    assert lines[0] == "shared |q 0:0.6 1:0.8 2:0"
    assert lines[1] == "|t t0 |c d:0.6000"
    assert lines[2] == "0:-1:0.5 |t t1 |c d:0.8000"
    assert len(lines) == 4


def test_vowpal_wabbit_learns_only_the_outcome_of_the_tool_shown(task, monkeypatch):
    learner = Remembers()
    monkeypatch.setattr(vw, "workspace", lambda *_: learner)
    order = np.array([0, 2, 1, -1])
    assert vw.served(task, order, "greedy", "nothing", 0.5, 0) == pytest.approx(2 / 3)
    labels = [
        next(line for line in text.split("\n") if "0:" in line[:2]) for text in learner.lessons
    ]
    assert [label.split(":")[1] for label in labels] == ["-1", "-0", "-1"]
    assert learner.finished


def test_from_the_documents_each_tool_is_right_for_its_own(task, monkeypatch):
    learner = Remembers()
    monkeypatch.setattr(vw, "workspace", lambda *_: learner)
    vw.served(task, np.array([0]), "greedy", "documents", 0.5, 0)
    assert len(learner.lessons) == 2 * 3 + 1
    assert sum("0:-1:1" in text for text in learner.lessons) >= 3


def test_vowpal_wabbit_learns_if_it_is_installed(task):
    pytest.importorskip("vowpalwabbit", reason="Vowpal Wabbit is not installed")
    order = np.tile([0, 1, 2], 10)
    assert vw.served(task, order, "greedy", "documents", 0.5, 0) > 0.9
