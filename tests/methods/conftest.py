"""A task on which every method trains quickly: words name tools, and networks have two blocks."""

import pytest

from jaxret.methods import common
from tests.tiny import encoder, letters


@pytest.fixture(scope="session")
def task(tmp_path_factory):
    return letters(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def parts(task):
    """Return the training part and the validation part."""
    return task.split((0.75, 0.25), seed=0)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def untrained(monkeypatch):
    """Return what a method gives to the training loop, which does not run."""
    kept = {}
    monkeypatch.setattr(common, "fitted", lambda *_, **given: kept.update(given) or given["start"])
    return kept
