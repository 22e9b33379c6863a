"""Tool2Vec against means computed one tool at a time."""

import jax
import numpy as np
import pytest

from jaxret.methods.tool2vec import left_out, own_left_out, tool2vec
from jaxret.retrieval.retriever import search
from tests.retrieval.conformance import check_retriever

ITEMS, N, WIDTH = 9, 14, 5
RNG = np.random.default_rng(0)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


QUERIES = unit(RNG.standard_normal((N, WIDTH))).astype(np.float32)
DOCUMENTS = unit(RNG.standard_normal((ITEMS, WIDTH))).astype(np.float32)
#: Tools 0 to 5 are used often, 6 and 7 once, and 8 never.
LABELS = np.stack([RNG.permutation(6)[:3] for _ in range(N)])
LABELS[::2, 1:] = -1
LABELS[[3, 4], [2, 1]] = 6, 7


def users(tool, without=None):
    """Return the vectors of the queries that used a tool."""
    rows = [n for n in range(N) if tool in LABELS[n] and n != without]
    return QUERIES[rows].astype(np.float64)


def test_the_test_data_have_tools_with_many_one_and_no_queries():
    assert [len(users(tool)) for tool in (6, 7, 8)] == [1, 1, 0]
    assert min(len(users(tool)) for tool in range(6)) > 1


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("mix", [1.0, 0.7, 0.0])
def test_embeddings_are_means_of_usage_mixed_with_documents(normalise, mix):
    expected = DOCUMENTS.astype(np.float64)
    for tool in range(ITEMS - 1):
        mean = users(tool).mean(axis=0)
        mixed = mix * (unit(mean) if normalise else mean) + (1 - mix) * DOCUMENTS[tool]
        expected[tool] = unit(mixed) if normalise else mixed
    make = jax.jit(tool2vec, static_argnames=("normalise", "mix"))
    got = make(QUERIES, LABELS, DOCUMENTS, normalise=normalise, mix=mix)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_array_equal(got[8], DOCUMENTS[8])


def test_vectors_that_cancel_have_no_direction_and_no_nan():
    opposite = np.array([[1, 0], [-1, 0]], np.float32)
    got = jax.jit(tool2vec)(opposite, np.array([[0], [0]]), np.array([[0, 1]], np.float32))
    np.testing.assert_array_equal(got, [[0, 0]])


@pytest.mark.parametrize("mix", [-0.1, 1.1])
def test_weights_outside_0_to_1_are_refused(mix):
    with pytest.raises(ValueError, match=rf"mix must be in \[0, 1\], got {mix}"):
        tool2vec(QUERIES, LABELS, DOCUMENTS, mix=mix)


def test_a_query_sees_its_own_tools_as_if_it_had_never_been_asked():
    rows = np.array([4, 3, 0])
    got, of_queries = own_left_out(QUERIES, LABELS, DOCUMENTS)(rows), jax.jit(tool2vec)
    for n, vectors in zip(rows, got, strict=True):
        everything = np.arange(N) != n
        never = np.asarray(of_queries(QUERIES[everything], LABELS[everything], DOCUMENTS))
        for tool, vector in zip(LABELS[n], vectors, strict=True):
            if tool >= 0:
                np.testing.assert_allclose(vector, never[tool], atol=1e-6)
    assert (LABELS[rows] == -1).any()
    assert 6 in LABELS[3]  # the only query that uses tool 6
    every = np.asarray(of_queries(QUERIES, LABELS, DOCUMENTS))
    np.testing.assert_allclose(every[6], QUERIES[3], atol=1e-6)


def test_left_out_scores_are_those_of_means_without_the_query():
    expected = np.empty((N, ITEMS))
    for n in range(N):
        for tool in range(ITEMS):
            others = users(tool, without=n)
            theta = unit(others.mean(axis=0)) if len(others) else DOCUMENTS[tool]
            expected[n, tool] = QUERIES[n] @ theta
    retriever = left_out(QUERIES, LABELS, DOCUMENTS)
    positions = np.arange(N)[:, None]
    scores = np.asarray(jax.jit(retriever.score)(retriever.params, retriever.read(positions)))
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(scores[3, 6], QUERIES[3] @ DOCUMENTS[6], atol=1e-6)  # its only query
    found = search(retriever, positions, 4, progress=False)
    np.testing.assert_array_equal(found.items, np.argsort(-expected, axis=1)[:, :4])


def test_left_out_satisfies_the_contract_of_retrievers():
    check_retriever(left_out(QUERIES, LABELS, DOCUMENTS), np.array([[3], [0], [11], [4]]))
