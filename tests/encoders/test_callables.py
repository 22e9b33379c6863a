"""Callables as encoders: valid and invalid return values, and the cache on disk."""

import numpy as np
import pytest

from jaxret.encoders import callables as module
from jaxret.encoders import encode, encoder_name

TEXTS = ["b", "aa", "b", "a b c"]


class Counting:
    """Encodes texts to width 2 and records the texts that it received."""

    def __init__(self, cache_name=None, width=2):
        self.given, self.width = [], width
        if cache_name is not None:
            self.cache_name = cache_name

    def __call__(self, texts):
        self.given += texts
        return np.array([[len(text), text.count("a"), 5][: self.width] for text in texts])


def vectors(encoder, cache=None, texts=TEXTS):
    return encode(encoder, texts, kind="query", cache=cache, progress=False)


def test_rows_are_in_the_order_of_the_texts_and_equal_texts_are_given_once(monkeypatch):
    monkeypatch.setattr(module, "SHARD", 2)
    encoder = Counting()
    found = vectors(encoder)
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 0], [2, 2], [1, 0], [5, 1]]
    assert encoder.given == ["b", "aa", "a b c"]


def test_only_what_has_a_cache_name_is_kept_and_under_that_name_alone(tmp_path):
    for name, calls in ((None, 3), (None, 3), ("one", 3), ("one", 0), ("two", 3)):
        encoder = Counting(name)
        np.testing.assert_array_equal(vectors(encoder, tmp_path), vectors(Counting()))
        assert len(encoder.given) == calls
        assert len(list(tmp_path.rglob("*.npy"))) == {None: 0, "one": 1, "two": 2}[name]
    encoder = Counting("one")
    assert vectors(encoder, tmp_path, ["b", "new"]).tolist() == [[1, 0], [3, 0]]
    assert encoder.given == ["new"]
    wider = r"width 3 and its earlier vectors 2: .*another cache_name"
    with pytest.raises(ValueError, match=wider):
        vectors(Counting("one", width=3), tmp_path, ["newer"])


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.ones(3), r"for 3 texts must be a matrix with rows, got the shape \[3\]"),
        (np.ones((2, 4)), r"for 3 texts must be \[3, d\], got \[2, 4\]"),
        (np.ones((3, 0)), "must be a matrix with rows"),
        ([["a"]] * 3, "must be a matrix of numbers"),
        (None, "must be a matrix"),
        ([[1.0], [np.nan], [1.0]], "'odd' for 3 texts is not finite for the text 'aa'"),
    ],
)
def test_an_output_that_is_not_one_finite_vector_per_text_is_refused(output, message):
    def odd(texts):
        return output

    with pytest.raises(ValueError, match=message) as caught:
        vectors(odd)
    assert "\n" not in str(caught.value)
    assert "odd" in str(caught.value)


def test_texts_are_checked_before_the_callable_sees_them():
    encoder = Counting()
    with pytest.raises(ValueError, match="text 1 of 2 is empty"):
        vectors(encoder, texts=["a", " "])
    with pytest.raises(ValueError, match="'Counting' was given no texts"):
        vectors(encoder, texts=[])
    assert not encoder.given


def test_a_callable_is_shown_by_its_cache_name_its_own_or_that_of_its_class():
    assert encoder_name(Counting("large-3")) == "large-3"
    assert encoder_name(vectors) == "vectors"
    assert encoder_name(Counting()) == "Counting"
