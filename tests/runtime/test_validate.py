import jax
import numpy as np
import pytest

from jaxret.runtime.validate import matrix_of, require, require_labels, require_task

THETA, QUERIES = np.ones((3, 2)), np.ones((4, 2))
LABELS = np.array([[0, -1], [2, 1], [1, -1], [0, 2]])


def test_a_setting_outside_its_range_is_named_with_its_value_unless_it_is_traced():
    with pytest.raises(ValueError, match="eta must be >= 0, got -1"):
        require("eta", -1, ">= 0", lambda x: x >= 0)
    checked = jax.jit(lambda x: require("eta", x, ">= 0", lambda x: x >= 0) or x)
    assert checked(-1.0) == -1.0


def test_consistent_arrays_and_labels_with_padding_are_accepted():
    require_task(THETA, QUERIES, LABELS)
    require_labels(np.array([[0, -1, -1], [2, 1, -1]]), num_items=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta": np.ones(3)}, r"must be \[I, d\], \[N, d\], \[N, L\], got \[\(3,\)"),
        ({"queries": np.ones((4, 5))}, "items have 2 numbers and queries 5"),
        ({"labels": LABELS[:2]}, "4 queries and labels for 2"),
        ({"theta": np.array([[1, 1], [1, np.nan], [0, 0]])}, "row 1 of theta is not finite"),
        ({"labels": np.array([[0], [3], [1], [1]])}, r"query 1 has the labels \[3\]: outside -1"),
    ],
)
def test_inconsistent_arrays_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        require_task(**({"theta": THETA, "queries": QUERIES, "labels": LABELS} | change))


def test_a_matrix_is_a_read_only_aligned_copy_of_real_numbers():
    rows = np.ones((3, 5))
    matrix = matrix_of("theta", rows)
    rows[0] = 7
    assert matrix.dtype == np.float32
    assert (matrix == 1).all()
    assert matrix.ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        matrix[0] = 2
    with pytest.raises(ValueError, match="theta must be a matrix of numbers: complex"):
        matrix_of("theta", [[1j, 2.0]])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1], [-1, -1]], r"query 1 has no label; drop it or give it one: \[-1, -1\]"),
        ([[0, 1], [2, 3]], r"query 1 has a label outside \[-1, 3\): \[2, 3\] \(1 such"),
        ([[2, 2], [0, -1]], r"query 0 names a label twice: \[2, 2\]"),
    ],
)
def test_meaningless_labels_are_refused_by_query(labels, message):
    with pytest.raises(ValueError, match=message):
        require_labels(np.array(labels), num_items=3)
