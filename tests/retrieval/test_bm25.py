"""BM25 against its formula, evaluated in NumPy from counts of words."""

import math
import re

import numpy as np
import pytest

import jaxret as jr
from jaxret.retrieval.bm25 import bm25
from jaxret.retrieval.retriever import search
from tests.retrieval.conformance import check_retriever

DOCUMENTS = [
    "Weather forecast for the next days; weather maps.",
    "Book a train, or a seat on a train to the coast",
    "forecast of train delays",
    "",
    "Currency EUR to USD",
    "The weather_v2 API: über-fast",
    "And it is not for the",  # only stop words
]
QUERIES = [
    "Will the TRAIN be late?",
    "weather forecast weather",  # a repeated word
    "über the sea",
    "is it not for the",
    "nothing known",
    "x y z train",  # words of one letter are ignored
]
STOP = {"for", "the", "or", "on", "to", "of", "and", "it", "is", "not", "will", "be", "a"}


def words(text):
    return [w for w in re.findall(r"\w{2,}", text.lower()) if w not in STOP]


def formula(query, k1=1.5, b=0.75):
    documents = [words(document) for document in DOCUMENTS]
    mean = np.mean([len(document) for document in documents])
    scores = np.zeros(len(documents))
    for word in words(query):
        holds = sum(word in document for document in documents)
        if not holds:
            continue
        rarity = math.log(1 + (len(documents) - holds + 0.5) / (holds + 0.5))
        for i, document in enumerate(documents):
            count = document.count(word)
            scores[i] += rarity * count / (count + k1 * (1 - b + b * len(document) / mean))
    return scores


def test_scores_are_those_of_the_formula():
    got = bm25(DOCUMENTS).read(QUERIES)
    expected = np.stack([formula(query) for query in QUERIES])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)
    assert (expected[:3].max(axis=1) > 0.5).all()
    assert got[3:5].max() == 0  # no known word


def test_documents_are_ranked_by_their_scores_as_the_contract_says():
    found = search(bm25(DOCUMENTS), QUERIES[:2], 2, progress=False)
    expected = np.argsort(-np.stack([formula(q) for q in QUERIES[:2]]), kind="stable")[:, :2]
    np.testing.assert_array_equal(found.items, expected)
    check_retriever(bm25(DOCUMENTS), QUERIES, k=4)
    with pytest.raises(ValueError, match="none of the 2 documents holds a word"):
        bm25(["", "the of"])


def test_the_vectors_of_a_task_without_texts_are_refused():
    task = jr.Task.from_arrays(np.eye(7), np.eye(7), range(7))
    with pytest.raises(TypeError, match=r"text 0 must be a string, got a vector, .*from_arrays"):
        jr.evaluate(bm25(DOCUMENTS), task)
