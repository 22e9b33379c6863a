"""Padding of texts to few lengths and of batches to few shapes."""

import numpy as np
import pytest

from jaxret.encoders.padding import FINE, LENGTHS, batches, pad, padded_length


def test_batches_hold_every_text_once_in_few_shapes():
    lengths = np.random.default_rng(2).integers(2, 513, 500)
    seen, shapes = [], set()
    for rows, ids, mask in batches([[1] * n for n in lengths], batch_tokens=1024):
        seen.extend(rows)
        shapes.add(ids.shape)
        np.testing.assert_array_equal(mask.sum(1)[: len(rows)], lengths[rows])
        np.testing.assert_array_equal(ids, mask)
        assert mask.any(axis=1).all()  # the mean over a row of padding is undefined
    assert sorted(seen) == list(range(500))
    assert shapes <= {(1024 // length, length) for length in LENGTHS}


def test_more_lengths_pad_less():
    tokens = [[1] * n for n in np.random.default_rng(3).integers(2, 257, 5000)]
    padded = {}
    for lengths in (LENGTHS, FINE):
        shapes = [ids.shape for _, ids, _ in batches(tokens, 512, lengths)]
        assert set(shapes) <= {(512 // length, length) for length in lengths}
        padded[lengths] = sum(rows * length for rows, length in shapes)
    real = sum(map(len, tokens))
    assert padded[FINE] - real < 0.6 * (padded[LENGTHS] - real)
    assert set(LENGTHS) <= set(FINE)


def test_token_numbers_are_padded_at_the_end_to_a_known_length():
    ids, mask = pad([[5, 6, 7], [8], [9, 9]], lengths=(2, 4, 8))
    np.testing.assert_array_equal(ids, [[5, 6, 7, 0], [8, 0, 0, 0], [9, 9, 0, 0]])
    np.testing.assert_array_equal(mask, np.arange(4) < np.array([[3], [1], [2]]))
    assert [padded_length(length) for length in (1, 16, 17, 512)] == [16, 16, 24, 512]
    [(rows, ids, mask)] = batches([[1] * 20], batch_tokens=1024)
    assert rows.tolist() == [0]
    assert ids.shape == mask.shape == (1, 24)  # a text that comes alone is not filled up
    with pytest.raises(ValueError, match="a text has 9 tokens, the limit is 8: cut it"):
        pad([[1] * 9], lengths=(2, 4, 8))
