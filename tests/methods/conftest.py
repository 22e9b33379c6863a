"""A task small enough to train every method on: words that name tools, a network of two blocks."""

import numpy as np
import pytest

from jaxret.encoders import encode
from jaxret.task import Task
from tests.tiny import encoder

ITEMS, QUERIES = 8, 48
DOCUMENTS = tuple(f"{letter} {letter} q" for letter in "abcdefgh")


@pytest.fixture(scope="session")
def task(tmp_path_factory):
    """Each query holds the letters of its one or two tools, between letters that say nothing."""
    tiny = encoder(tmp_path_factory.mktemp("tiny"))
    rng = np.random.default_rng(0)
    labels = np.stack([np.arange(QUERIES) % ITEMS, np.full(QUERIES, -1)], axis=1).astype(np.int32)
    labels[::3, 1] = (labels[::3, 0] + 1) % ITEMS
    texts = tuple(
        " ".join([*("abcdefgh"[i] for i in row if i >= 0), *rng.choice(list("klmnop"), 3)])
        for row in labels
    )
    options = {"cache": None, "progress": False}
    return Task(
        name="letters",
        ids=tuple(f"tool {i}" for i in range(ITEMS)),
        theta=encode(tiny, list(DOCUMENTS), kind="document", **options),
        queries=encode(tiny, list(texts), kind="query", **options),
        labels=labels,
        groups=np.arange(QUERIES),
        query_ids=tuple(map(str, range(QUERIES))),
        documents=DOCUMENTS,
        texts=texts,
        encoder=tiny,
    )


@pytest.fixture(scope="session")
def parts(task):
    """Training and validation."""
    return task.split((0.75, 0.25), seed=0)
