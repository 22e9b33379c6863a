"""Pairs by the rules that they must keep."""

import numpy as np
import pytest

from jaxret.training.pairs import hard_negatives, random_negatives

LABELS = np.array([[3, -1], [0, 4], [1, -1]])


def test_every_label_is_a_pair_and_its_negatives_are_wrong_and_differ():
    pairs = random_negatives(LABELS, 7, count=4, seed=1)
    assert pairs[:, :2].tolist() == [[0, 3], [1, 0], [1, 4], [2, 1]]
    for query, _, *wrong in pairs.tolist():
        assert not set(wrong) & set(LABELS[query].tolist())
        assert len(set(wrong)) == 4
        assert min(wrong) >= 0
    np.testing.assert_array_equal(pairs, random_negatives(LABELS, 7, count=4, seed=1))
    assert (pairs != random_negatives(LABELS, 7, count=4, seed=2)).any()


def test_every_wrong_tool_is_drawn_about_as_often():
    labels = np.full((3000, 1), 2)
    wrong = random_negatives(labels, 6, count=2)[:, 2:]
    counts = np.bincount(wrong.ravel(), minlength=6)
    assert counts[2] == 0
    assert (np.abs(np.delete(counts, 2) - 1200) < 4 * np.sqrt(1200)).all()


def test_where_wrong_tools_run_out_there_is_none():
    pairs = random_negatives(LABELS, 5, count=4)
    assert (pairs >= 0).sum(axis=1).tolist() == [6, 5, 5, 6]


def test_hard_negatives_are_the_best_wrong_ones():
    found = np.array([[3, 5, 6, 0], [4, 0, 2, -1], [6, -1, -1, -1]])
    pairs = hard_negatives(LABELS, found, count=2)
    assert pairs[:, 2:].tolist() == [[5, 6], [2, -1], [2, -1], [6, -1]]


def test_labels_outside_the_catalogue_are_refused():
    with pytest.raises(ValueError, match="query 1 has a label outside"):
        random_negatives(LABELS, 4, count=1)
