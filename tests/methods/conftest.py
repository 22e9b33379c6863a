"""A task on which every method trains quickly: words name tools, and networks have two blocks."""

import pytest

from tests.tiny import letters


@pytest.fixture(scope="session")
def task(tmp_path_factory):
    return letters(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def parts(task):
    """Return the training part and the validation part."""
    return task.split((0.75, 0.25), seed=0)
