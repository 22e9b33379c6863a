"""A task small enough to train every method on: words that name tools, a network of two blocks."""

import pytest

from tests.tiny import letters


@pytest.fixture(scope="session")
def task(tmp_path_factory):
    return letters(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def parts(task):
    """Training and validation."""
    return task.split((0.75, 0.25), seed=0)
