"""Batches: each example occurs once, in an order that depends only on seed and position."""

import numpy as np
import pytest

from jaxret.training.batches import shuffled

LENGTHS = np.random.default_rng(0).lognormal(3, 0.6, 2003).astype(int) + 2


def rows_of(lengths=LENGTHS, size=16, seed=0):
    """Make batches that contain only the positions of their examples."""
    return shuffled(lengths, lambda rows: rows, size=size, seed=seed)


def epoch(batches, number):
    first = number * batches.epoch
    return [batches((first + i) * batches.size) for i in range(batches.epoch)]


def test_every_example_comes_at_most_once_an_epoch():
    batches = rows_of()
    assert (batches.size, batches.epoch) == (16, 125)
    left_out = []
    for number in range(3):
        seen = np.concatenate(epoch(batches, number))
        assert len(set(seen)) == len(seen) == 2000
        left_out.append(set(range(2003)) - set(seen))
    assert len(set.union(*left_out)) > 3  # epochs leave out different examples


def test_epochs_and_seeds_differ_in_their_order():
    batches = rows_of()
    first, second = (np.concatenate(epoch(batches, number)) for number in (0, 1))
    other = np.concatenate(epoch(rows_of(seed=1), 0))
    for a, b in [(first, second), (first, other)]:
        assert (a == b).mean() < 0.05


def test_a_batch_depends_on_seed_and_position_alone():
    batches = rows_of()
    walked = [batches(16 * step) for step in range(400)]
    for step in (399, 130, 0):  # also for a past epoch
        np.testing.assert_array_equal(rows_of()(16 * step), walked[step])
        np.testing.assert_array_equal(batches(16 * step), walked[step])


def test_batches_of_like_length_have_little_padding_and_are_not_sorted():
    def padding(batches):
        return sum(len(rows) * LENGTHS[rows].max() - LENGTHS[rows].sum() for rows in batches)

    ours = epoch(rows_of(), 0)
    at_random = np.random.default_rng(1).permutation(2003)[:2000].reshape(-1, 16)
    assert padding(ours) < 0.25 * padding(at_random)
    longest = [LENGTHS[rows].max() for rows in ours]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


@pytest.mark.parametrize("size", [0, 6])
def test_batches_that_cannot_be_filled_are_refused(size):
    with pytest.raises(ValueError, match=rf"batch size must be in 1 \.\. 5, got {size}"):
        rows_of(lengths=[3] * 5, size=size)
