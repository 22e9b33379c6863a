"""Near-duplicate queries, on texts written by hand and on DeskBank."""

import numpy as np
import pytest

from jaxret import data
from jaxret.data import hops, near_duplicates
from jaxret.data.near_duplicates import NearDuplicates
from jaxret.data.ultratool import TEMPLATE


def test_the_share_is_that_of_the_one_query_with_most_words_in_common():
    texts = ["Send a mail to Bob", "delete the file", "?"]
    others = ["send a MAIL to Ann", "send Bob nothing", "Delete the old file."]
    shares = near_duplicates.shared_words(texts, others)
    np.testing.assert_allclose(shares, [4 / 6, 3 / 4, 0.0], rtol=1e-6)
    assert near_duplicates.shared_words(texts, []).tolist() == [0, 0, 0]


@pytest.mark.parametrize("template", [TEMPLATE, hops.TEMPLATE.replace("query", "question")])
def test_only_the_words_of_the_sub_task_count(template):
    one, two = (template.format(question=q, step="1.2 Write the file") for q in ("a b c", "x y z"))
    other = template.format(question="a b c", step="3.4 Send it to Ann")
    assert near_duplicates.shared_words([one], [two]) == pytest.approx(1.0)
    assert near_duplicates.shared_words([one], [other]) == pytest.approx(0.0)


def test_queries_asked_for_are_near_known_ones_from_four_words_of_five_on():
    texts = ["one two", "two one", "three", "one two three four five"]
    asked, known = np.array([0, 1, 1, 0], bool), np.array([1, 0, 0, 1], bool)
    assert near_duplicates.near(texts, asked, known).tolist() == [False, True, False, False]
    texts = ["a b c d e", "a b c d", "a b c x", "nothing else"]  # shares 4/5, 3/6 and 0
    known = np.array([True, False, False, False])
    assert near_duplicates.near(texts, ~known, known).tolist() == [False, True, False, False]


def test_a_query_is_near_another_one_of_its_list_and_not_near_itself():
    texts = ["a b c d e", "a b c d", "x y", "X, y!", "?", "!", "a b c", "", "p"]
    marked = [True, True, True, True, False, False, False, False, False]  # shares 4/5, 1, none, 3/4
    assert near_duplicates.near_another(texts).tolist() == marked
    assert near_duplicates.near_another([]).tolist() == []


@pytest.mark.parametrize("block", [1, 7, 512])
def test_every_pair_is_compared_for_any_block_size(block, monkeypatch):
    monkeypatch.setattr(near_duplicates, "BLOCK", block)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefgh"), rng.integers(1, 7))) for _ in range(30)]
    sets = [set(text.split()) for text in texts]
    pairs = np.array([[len(a & b) / len(a | b) for b in sets] for a in sets])
    np.testing.assert_allclose(
        near_duplicates.shared_words(texts[:20], texts[20:]), pairs[:20, 20:].max(axis=1), rtol=1e-6
    )
    np.fill_diagonal(pairs, 0.0)
    expected = (pairs >= 0.8).any(axis=1)
    assert 0 < expected.sum() < 30
    assert near_duplicates.near_another(texts).tolist() == expected.tolist()


def pairs_of(text):
    """Return the pairs of neighbouring words, computed independently of the library."""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text.lower()).split()
    return {(words[i], words[i + 1]) for i in range(len(words) - 1)} or {tuple(words)}


@pytest.mark.parametrize(
    ("threshold", "known", "text", "near"),
    [
        (3 / 7, "Sum the sales of May, please.", "sum the SALES of june please", True),
        (3 / 7 + 1e-9, "Sum the sales of May, please.", "sum the SALES of june please", False),
        (1.0, "Help!", "help", True),
        (1.0, "Where is my parcel?", "where is MY parcel", True),
        (1.0, "Where is my parcel?", "where is my other parcel", False),
    ],
)
def test_two_texts_are_near_from_the_threshold_on(threshold, known, text, near):
    texts = NearDuplicates(threshold)
    texts.add(known)
    assert texts.find(text) == (known if near else None)


def test_near_finds_the_most_similar_of_all_texts_and_the_first_of_equals():
    """Compare DeskBank queries with words left out against brute force over all queries."""
    random, threshold = np.random.default_rng(0), 0.6
    texts = list(dict.fromkeys(data.load("deskbank").queries))[:300]
    near = NearDuplicates(threshold)
    for text in texts:
        near.add(text)
    near.add(texts[0].upper())  # ties with the first text, which must win
    assert near.find(texts[0]) == texts[0]
    pairs, found = [pairs_of(text) for text in texts], 0
    for text in texts[:60]:
        words = text.split()
        drop = random.integers(len(words), size=random.integers(0, 4))
        changed = " ".join(word for i, word in enumerate(words) if i not in drop)
        own = pairs_of(changed)
        similarities = [len(own & other) / len(own | other) for other in pairs]
        best = int(np.argmax(similarities))
        expected = texts[best] if similarities[best] >= threshold else None
        assert near.find(changed) == expected
        found += expected is not None
    assert 20 < found < 58


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.1])
def test_a_threshold_out_of_range_is_refused(threshold):
    with pytest.raises(ValueError, match=r"threshold must be in \(0, 1\]"):
        NearDuplicates(threshold)
