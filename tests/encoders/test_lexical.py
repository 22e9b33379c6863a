"""The match of words against its formula, evaluated in Python from counts of words."""

import math
import os
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

from jaxret.encoders.lexical import Lexicon, sparse_prior, words

DOCUMENTS = [
    "getTrainDelay: the delay of a train",
    "book_train seats; booking of train seats",
    "Weather forecasting, forecast v2",
    "",
    "And it is not for the",  # only stop words
    "HTTPServer2024 restarts",
]
QUERIES = ["Will the TRAIN be late?", "forecasts forecast of the train", "nothing known", "is it"]


def test_words_are_split_at_case_digits_and_underscores_and_cut():
    assert words(["getTrainDelay book_seats"]) == [["get", "train", "delay", "book", "seats"]]
    assert words(["HTTPServer2024, the forecasting"]) == [["http", "serve", "2024", "forec"]]
    assert words(["a x 1 is", ""]) == [[], []]  # one letter, one digit, a stop word
    assert words(["Zürich größer"]) == [["zuric", "große"]]
    assert words(["caf\u00e9"]) == words(["cafe\u0301"]) == [["cafe"]]  # composed or not
    assert words(["\u0645\u064f\u062d\u064e\u0645"]) == [["\u0645\u062d\u0645"]]  # vowel signs
    assert words(["\u0939\u093f\u0928\u094d\u0926\u0940"]) == [["\u0939\u0928\u0926"]]


def cosine(query, document):
    """Compute the cosine of BM25 weights whose IDF both sides share."""
    found = [Counter(one) for one in words(DOCUMENTS)]
    mean = sum(sum(one.values()) for one in found) / len(found)

    def idf(word):
        holds = sum(word in one for one in found)
        return math.log(1 + (len(found) - holds + 0.5) / (holds + 0.5))

    of_query = {
        word: math.sqrt(idf(word)) * count
        for word, count in Counter(words([query])[0]).items()
        if any(word in one for one in found)
    }
    counts = found[document]
    damped = 1.2 * (0.25 + 0.75 * sum(counts.values()) / mean)
    of_document = {w: math.sqrt(idf(w)) * f / (f + damped) for w, f in counts.items()}
    product = sum(x * of_document.get(word, 0.0) for word, x in of_query.items())
    lengths = [math.sqrt(sum(x * x for x in one.values())) for one in (of_query, of_document)]
    return product / math.prod(lengths) if product else 0.0


def test_scores_are_the_cosines_of_the_formula():
    items, scores = Lexicon(DOCUMENTS).prior(QUERIES)
    assert items.shape == scores.shape == (4, 6)  # never more than there are tools
    for query, row, found in zip(QUERIES, items, scores, strict=True):
        expected = np.array([cosine(query, i) for i in range(len(DOCUMENTS))])
        got = np.zeros(len(DOCUMENTS))
        got[row[row >= 0]] = found[row >= 0]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)
        assert (np.diff(found) <= 0).all()  # best first
    assert scores[0].max() > 0.3
    assert not scores[2:].any()
    assert (items[2:] == -1).all()


def test_a_document_matches_itself_fully_and_without_a_word_nothing():
    _, scores = Lexicon(["mail a letter", "read a book"]).prior(["mail a letter"])
    assert scores[0, 0] == pytest.approx(1.0)
    items, scores = Lexicon(["", "the"]).prior(["train"])
    assert (items == -1).all()
    assert not scores.any()


def test_the_best_are_kept_and_a_long_list_of_queries_is_cut_into_parts(monkeypatch):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"word{i}" for i in rng.integers(0, 30, 12)) for _ in range(90)]
    lexicon = Lexicon(texts)
    whole, few = lexicon.prior(texts, width=90), lexicon.prior(texts, width=7)
    np.testing.assert_array_equal(few.scores, whole.scores[:, :7])
    monkeypatch.setattr("jaxret.encoders.lexical.CELLS", 200)  # two queries at a time
    again = lexicon.prior(texts, width=7)
    np.testing.assert_array_equal(again.items, few.items)
    np.testing.assert_array_equal(again.scores, few.scores)


def test_of_equal_scores_the_earlier_tool_comes_first_and_is_kept_at_the_cut():
    texts = [f"mail {name}" for name in ("letter", "stamps", "parcel") * 9]
    items, scores = Lexicon(texts).prior(["mail", "a parcel", "the stamps of a letter"])
    for row, found in zip(items, scores, strict=True):
        np.testing.assert_array_equal(np.lexsort((row, -found)), np.arange(27))
    texts = ["mail letter", *["mail parcel"] * 90, "mail letter"]
    items, _ = Lexicon(texts).prior(["a letter in the mail"], width=7)
    assert items[0].tolist() == [0, 91, 1, 2, 3, 4, 5]


def test_scores_do_not_depend_on_the_hashes_of_a_process():
    """bm25s orders words by their hash, which Python draws anew in each process."""
    code = (
        "import numpy as np; from jaxret.encoders.lexical import Lexicon;"
        "rng = np.random.default_rng(0);"
        "texts = [' '.join(f'word{i}' for i in rng.integers(10, 99, 40)) for _ in range(40)];"
        "print(Lexicon(texts)._documents.data.tobytes().hex())"  # float32 would hide a difference
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # not that of this process
    other = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, text=True
    )
    with redirect_stdout(StringIO()) as one:
        exec(code, {})
    assert one.getvalue() == other


def test_given_scores_are_kept_sparse():
    scores = np.array([[0.0, 2.0, -1.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]], np.float32)
    items, values = sparse_prior(scores)
    np.testing.assert_array_equal(items, [[1, 2], [-1, -1], [0, -1]])
    np.testing.assert_array_equal(values, [[2.0, -1.0], [0.0, 0.0], [0.5, 0.0]])
