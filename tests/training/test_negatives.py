"""Pairs and triplets against the rules that define them; mining against sorted rows."""

import numpy as np
import pytest

from jaxret.training.negatives import hard_negatives, query2desc, query2query, random_negatives

RNG = np.random.default_rng(0)
LABELS = np.array([[3, -1], [0, 4], [1, -1]])


def make(n, width=8, tools=30, copies=0):
    """Make unit vectors with one to three tools each; the last ``copies`` repeat first texts."""
    labels = np.full((n, 3), -1)
    for row in labels:
        count = RNG.integers(1, 4)
        row[:count] = RNG.choice(tools, count, replace=False)
    vectors = RNG.normal(size=(n, width)).astype(np.float32)
    texts = [f"question {i}" for i in range(n)]
    for copy in range(copies):
        vectors[n - copies + copy], texts[n - copies + copy] = vectors[copy], texts[copy]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels, texts


def by_hand(vectors, labels, texts, window, per_side, allow_self):
    found, without = [], [0, 0]
    tools = [set(row) - {-1} for row in labels.tolist()]
    for a in range(len(vectors)):
        order = [int(b) for b in np.argsort(-(vectors @ vectors[a]), kind="stable")]
        order = [b for b in order if allow_self or texts[b] != texts[a]][:window]
        positive = [b for b in order if tools[a] & tools[b]][:per_side]
        negative = [b for b in order if not tools[a] & tools[b]][:per_side]
        found += [(a, p, n) for p in positive for n in negative]
        without[0] += not positive
        without[1] += not negative
    return found, without


@pytest.mark.parametrize("allow_self", [False, True])
@pytest.mark.parametrize(("window", "per_side"), [(20, 5), (3, 2), (1, 5)])
def test_mining_equals_a_loop_over_sorted_neighbours(window, per_side, allow_self):
    data = make(700)  # more than one chunk
    got = query2query(*data, window=window, per_side=per_side, allow_self=allow_self)
    found, without = by_hand(*data, window, per_side, allow_self)
    assert got.positions.tolist() == [list(triplet) for triplet in found]
    assert [got.without_positive, got.without_negative] == without


def test_a_window_wider_than_the_data_takes_all_other_queries():
    data = make(20, tools=15, copies=10)  # copies have their own tools
    got = query2query(*data, window=100, per_side=20)
    assert set(map(tuple, got.positions.tolist())) == set(by_hand(*data, 100, 20, False)[0])


def test_a_query_is_not_its_own_positive_except_in_the_reference():
    vectors, labels, texts = make(60, tools=8, copies=30)
    anchor, *others = query2query(vectors, labels, texts).positions.T
    text = np.array(texts)
    assert all((text[anchor] != text[other]).all() for other in others)
    anchor, positive, _ = query2query(vectors, labels, texts, allow_self=True).positions.T
    assert set(anchor[anchor == positive]) == set(anchor)


def test_copies_fill_the_positives_of_the_reference_only():
    """ToolBench has one line for each tool of a question."""
    vectors = np.eye(4, dtype=np.float32)[[0, 0, 0, 1, 2, 3]]
    labels = np.array([[0], [0], [0], [0], [0], [1]])
    texts = ["a", "a", "a", "b", "c", "d"]
    faithful = query2query(vectors, labels, texts, per_side=3, allow_self=True)
    assert {p for a, p, _ in faithful.positions.tolist() if a == 0} == {0, 1, 2}
    ours = query2query(vectors, labels, texts, per_side=3)
    assert {p for a, p, _ in ours.positions.tolist() if a == 0} == {3, 4}


def test_anchors_without_a_side_give_nothing_and_are_counted():
    vectors = np.eye(4, dtype=np.float32)
    alone = query2query(vectors, np.array([[0], [0], [1], [2]]), list("abcd"))
    assert set(alone.positions[:, 0]) == {0, 1}
    assert (alone.without_positive, alone.without_negative) == (2, 0)
    single = query2query(vectors, np.zeros((4, 1), int), list("abcd"))
    assert single.positions.shape == (0, 3)
    assert (single.without_positive, single.without_negative) == (0, 4)


def test_a_limit_draws_among_the_triplets_of_each_anchor():
    data = make(600, tools=10)

    def mined(**options):  # some anchors lack five candidates of a kind
        return query2query(*data, window=8, **options).positions

    whole, few = mined(), mined(limit=4, seed=1)
    counts = np.bincount(whole[:, 0], minlength=600)
    np.testing.assert_array_equal(np.bincount(few[:, 0], minlength=600), np.minimum(counts, 4))
    assert set(map(tuple, few.tolist())) <= set(map(tuple, whole.tolist()))
    assert len(np.unique(few, axis=0)) == len(few)
    np.testing.assert_array_equal(few, mined(limit=4, seed=1))
    assert few.tolist() != mined(limit=4, seed=2).tolist()
    cut = whole[np.concatenate([np.arange(c) < 4 for c in counts])]  # the nearest four
    assert few.tolist() != cut.tolist()


def test_descriptions_meet_every_own_tool_with_every_drawn_one():
    labels = np.array([[3, 0, -1], [1, -1, -1], [0, 1, 2]])
    got = query2desc(labels, 9, negatives=4)
    for query, right in enumerate([[3, 0], [1], [0, 1, 2]]):
        theirs = got[got[:, 0] == query]
        wrong = list(dict.fromkeys(theirs[:, 2].tolist()))
        assert len(wrong) == 4
        assert not set(wrong) & set(right)
        assert theirs[:, 1:].tolist() == [[p, n] for p in right for n in wrong]
    few = query2desc(np.array([[0, 1]]), 4, negatives=5)  # all the wrong tools there are
    assert sorted(map(tuple, few.tolist())) == [(0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3)]


def test_drawn_tools_are_uniform_over_the_wrong_ones_and_decided_by_the_seed():
    labels = np.tile([2, -1], (4000, 1))
    got = query2desc(labels, 6, negatives=2, seed=3)
    share = np.bincount(got[:, 2], minlength=6) / len(got)
    np.testing.assert_allclose(share, [0.2, 0.2, 0, 0.2, 0.2, 0.2], atol=0.02)
    one, again, other = (query2desc(labels[:200], 6, negatives=2, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert one.tolist() != other.tolist()


FIVE = make(5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: query2query(FIVE[0], FIVE[1][:4], FIVE[2]), r"of one length, got \(5, 4, 5\)"),
        (lambda: query2query(*FIVE, window=0), "window must be >= 1, got 0"),
        (lambda: query2query(*FIVE, limit=0), "limit must be >= 1, got 0"),
        (lambda: query2desc(FIVE[1], 30, negatives=0), "negatives must be >= 1, got 0"),
        (lambda: query2desc(np.array([[0], [4]]), 4), r"query 1 has a label outside \[-1, 4\)"),
        (lambda: random_negatives(LABELS, 4, count=1), "query 1 has a label outside"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_every_label_is_a_pair_and_its_negatives_are_wrong_and_differ():
    pairs = random_negatives(LABELS, 7, count=4, seed=1)
    assert pairs[:, :2].tolist() == [[0, 3], [1, 0], [1, 4], [2, 1]]
    for query, _, *wrong in pairs.tolist():
        assert not set(wrong) & set(LABELS[query].tolist())
        assert len(set(wrong)) == 4
        assert min(wrong) >= 0
    np.testing.assert_array_equal(pairs, random_negatives(LABELS, 7, count=4, seed=1))
    assert (pairs != random_negatives(LABELS, 7, count=4, seed=2)).any()
    few = random_negatives(LABELS, 5, count=4)  # there are only three or four wrong tools
    assert (few >= 0).sum(axis=1).tolist() == [6, 5, 5, 6]


def test_every_wrong_tool_is_drawn_about_as_often():
    labels = np.full((3000, 1), 2)
    wrong = random_negatives(labels, 6, count=2)[:, 2:]
    counts = np.bincount(wrong.ravel(), minlength=6)
    assert counts[2] == 0
    assert (np.abs(np.delete(counts, 2) - 1200) < 4 * np.sqrt(1200)).all()


def test_hard_negatives_are_the_best_wrong_ones():
    found = np.array([[3, 5, 6, 0], [4, 0, 2, -1], [6, -1, -1, -1]])
    pairs = hard_negatives(LABELS, found, count=2)
    assert pairs[:, 2:].tolist() == [[5, 6], [2, -1], [2, -1], [6, -1]]
