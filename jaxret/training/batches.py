"""Batches of examples as a pure function of seed and position, so that training can resume.

An epoch is a permutation of the examples. The permutation is cut into groups; each group is sorted
by length and cut into batches; the batches are shuffled. The texts of a batch are thus of similar
length, and little of the batch is padding.

Letters: n examples, B examples per batch.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Int

from jaxret.runtime.validate import require

GROUP = 16  # batches that are sorted by length together

Tokens: TypeAlias = Sequence[Sequence[int]]  # the token ids of several texts


class Batches(NamedTuple):
    """An endless sequence of batches. Made by `shuffled`."""

    at: Callable[[int], Any]  # number of examples drawn so far -> the next batch
    size: int  # B
    epoch: int  # batches per epoch

    def __call__(self, position: int) -> Any:
        return self.at(position)


def shuffled(
    lengths: Sequence[int] | Int[np.ndarray, " n"],
    collate: Callable[[Int[np.ndarray, " B"]], Any],
    *,
    size: int,
    seed: int,
) -> Batches:
    """Make batches in which every example comes at most once an epoch.

    The ``n % size`` examples that fill no batch differ from epoch to epoch.

    Args:
      lengths: tokens of each of the n examples, to sort by.
      collate: maps positions of examples [B] to a batch, a tree of arrays with leading axis B.
      size: examples per batch, B.
      seed: seed of the permutations.

    Raises:
      ValueError: for a size outside 1 .. n.
    """
    sizes = np.asarray(lengths)
    require("batch size", size, f"in 1 .. {len(sizes)}", lambda b: 1 <= b <= len(sizes))

    @lru_cache(maxsize=2)
    def epoch(number: int) -> Int[np.ndarray, "n B"]:
        random = np.random.default_rng((seed, number))
        rows = random.permutation(len(sizes))[: len(sizes) // size * size]
        groups = np.array_split(rows, range(GROUP * size, len(rows), GROUP * size))
        ordered = [group[np.argsort(sizes[group], kind="stable")] for group in groups]
        return random.permutation(np.concatenate(ordered).reshape(-1, size))

    per_epoch = len(sizes) // size

    def at(position: int):
        number, batch = divmod(position // size, per_epoch)
        return collate(epoch(number)[batch])

    return Batches(at=at, size=size, epoch=per_epoch)
