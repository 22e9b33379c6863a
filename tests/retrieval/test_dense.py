"""Dense retrieval of texts, and with given query vectors."""

import numpy as np
import pytest

from jaxret.encoders import encode
from jaxret.retrieval.dense import dense, inner_product
from jaxret.retrieval.retriever import search
from tests import tiny
from tests.retrieval.conformance import check_retriever

DOCUMENTS = [f"{letter} {letter} q" for letter in "abcdef"]
QUERIES = ["c c q", "e e q", "a b f"]


def test_texts_find_the_tools_whose_vectors_are_nearest(tmp_path):
    encoder = tiny.encoder(tmp_path)
    theta = encode(encoder, DOCUMENTS, kind="document", cache=None, progress=False)
    retriever = dense("tiny", theta, encoder, cache=tmp_path)
    found = search(retriever, QUERIES, 3, progress=False)
    vectors = encode(encoder, QUERIES, kind="query", cache=None, progress=False)
    scores = vectors.astype(np.float64) @ theta.T.astype(np.float64)
    np.testing.assert_array_equal(found.items, np.argsort(-scores, axis=1)[:, :3])
    np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1)[:, :3], atol=1e-6)
    assert found.items[:2, 0].tolist() == [2, 4]
    assert list(tmp_path.rglob("*.npy"))  # the query vectors are cached


def test_vectors_in_hand_are_queries_too():
    rng = np.random.default_rng(0)
    theta, queries = (rng.normal(size=(n, 8)).astype(np.float32) for n in (21, 5))
    retriever = inner_product("vectors", theta)
    found = search(retriever, queries, 4, progress=False)
    np.testing.assert_array_equal(found.items, np.argsort(-queries @ theta.T, axis=1)[:, :4])
    check_retriever(retriever, queries)
    with pytest.raises(ValueError, match=r"queries have the shape \(2, 3\) and tools \(21, 8\)"):
        search(retriever, np.ones((2, 3)), 1, progress=False)
