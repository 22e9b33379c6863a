"""Clustering of tools: groups are separated, and their number is the requested one."""

import numpy as np
import pytest

from jaxret.offline.off_policy import groups_of_rows


def test_well_separated_clusters_are_found():
    rng = np.random.default_rng(0)
    centres, mine = 10 * np.eye(4), rng.integers(4, size=60)
    groups = groups_of_rows(centres[mine] + rng.normal(size=(60, 4)), 4)
    assert sorted(np.unique(groups)) == [0, 1, 2, 3]
    for centre in range(4):
        assert len(np.unique(groups[mine == centre])) == 1


def test_the_number_of_groups_is_at_most_that_of_distinct_rows():
    rows = np.random.default_rng(0).normal(size=(49, 3))
    assert groups_of_rows(rows).max() + 1 == 7
    assert sorted(groups_of_rows(rows, 49)) == [*range(49)]
    np.testing.assert_array_equal(groups_of_rows(rows, 1), 0)
    alike = groups_of_rows(np.repeat(rows[:2], 20, axis=0), 5)  # more groups than distinct rows
    np.testing.assert_array_equal(alike == alike[0], np.arange(40) < 20)
    assert sorted(np.unique(alike)) == [0, 1]
    for wrong in (0, 50):
        with pytest.raises(ValueError, match=rf"groups must be in 1 .. 49, got {wrong}"):
            groups_of_rows(rows, wrong)
