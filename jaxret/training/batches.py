"""Which examples make which batch: a pure function of seed and position, so that a run can resume.

An epoch is a permutation of the examples. It is cut into groups, a group is sorted by length and
cut into batches, and the batches are shuffled again: texts of a batch are about equally long, and
little of it is padding.

Letters: n examples, B examples a batch.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.runtime.validate import require

GROUP = 16  # batches that are sorted by length together


class Batches(NamedTuple):
    """An endless row of batches. Made by `shuffled`."""

    at: Callable[[int], Any]  # examples drawn so far -> the next batch
    size: int  # B
    epoch: int  # batches an epoch

    def __call__(self, position: int) -> Any:
        return self.at(position)


def shuffled(
    lengths: Sequence[int] | Int[np.ndarray, " n"],
    collate: Callable[[Int[np.ndarray, " B"]], Any],
    *,
    size: int,
    seed: int,
) -> Batches:
    """Batches of ``size`` examples, every example at most once an epoch.

    The ``n % size`` examples that fill no batch are others in each epoch.

    Args:
      lengths: tokens of each example, for the sorting.
      collate: makes a batch of arrays, leading axis B, from the rows of its examples.
      size: B.
      seed: of the permutations.
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
