import pytest

from jaxret.encoders import encode
from tests.tiny_folders import TEXTS, write_bert


@pytest.fixture
def checkpoint(tmp_path):
    write_bert(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def vectors(encoder, texts=TEXTS, *, kind="query", cache=None):
    return encode(encoder, texts, kind=kind, cache=cache, progress=False)
