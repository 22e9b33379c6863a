"""Near-duplicates among queries: word pairs in common, found by MinHash and counted exactly.

Two queries are near if the Jaccard similarity of their sets of word pairs reaches a threshold;
words are lower case, without punctuation. Pairs notice order and cost no model, so the same
queries are near on every machine. Candidates share one of 32 bands of 3 hashes (Broder 1997; at
similarity 0.6 one pair in 2,400 is overlooked, at 0.7 one in 700,000), and are then compared.
"""

import hashlib
import re
from itertools import pairwise

import numpy as np

from jaxret.runtime.validate import require

BANDS, ROWS = 32, 3


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """The pairs of neighbouring words; of a text with one word, that word."""
    words = re.findall(r"\w+", text.lower())
    return frozenset(pairwise(words)) or frozenset([tuple(words)])


def similarity(one: frozenset, other: frozenset) -> float:
    """Jaccard: what is shared over what there is."""
    return len(one & other) / len(one | other)


class NearDuplicates:
    """Texts that were accepted, and whether a new one is near one of them.

    Args:
      threshold: similarity from which two texts are near, in (0, 1].
    """

    def __init__(self, threshold: float):
        require("threshold", threshold, "in (0, 1]", lambda x: 0 < x <= 1)
        self._threshold = threshold
        self._texts: list[tuple[str, frozenset]] = []
        self._buckets: dict[tuple[int, bytes], list[int]] = {}
        random = np.random.default_rng(0)
        self._factors = random.integers(1, 2**64, (2, BANDS * ROWS), np.uint64) | np.uint64(1)

    def find(self, text: str) -> str | None:
        """The most similar text that is near, the earliest of equals; None where none is."""
        own = shingles(text)
        candidates = {i for key in self._keys(own) for i in self._buckets.get(key, ())}
        scored = [(similarity(own, self._texts[i][1]), -i) for i in candidates]
        best, place = max(scored, default=(0.0, 0))
        return self._texts[-place][0] if best >= self._threshold else None

    def add(self, text: str) -> None:
        """Accepts a text."""
        own = shingles(text)
        for key in self._keys(own):
            self._buckets.setdefault(key, []).append(len(self._texts))
        self._texts.append((text, own))

    def _keys(self, own: frozenset) -> list[tuple[int, bytes]]:
        hashed = np.array([_hash(shingle) for shingle in own], np.uint64)
        times, plus = self._factors
        mixed = hashed[:, None] * times + plus  # modulo 2^64
        least = (mixed ^ (mixed >> np.uint64(32))).min(axis=0).reshape(BANDS, ROWS)
        return [(band, row.tobytes()) for band, row in enumerate(least)]


def _hash(shingle: tuple[str, ...]) -> int:
    """The same in every process."""
    digest = hashlib.blake2b(" ".join(shingle).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
