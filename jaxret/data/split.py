"""Splits queries into train, validation and test, so that no question is in two parts.

Two queries belong to one question if they are of one group, or if their normalised texts, and
hence their embeddings, are equal.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxret.data.dataset import PART_NAMES, Dataset, split_by_group
from jaxret.data.templates import normalise


class Split(NamedTuple):
    """Positions of the queries of each part, ascending; every query is in one part."""

    train: Int[np.ndarray, " A"]
    validation: Int[np.ndarray, " B"]
    test: Int[np.ndarray, " C"]


def own_split(
    dataset: Dataset, *, validation: float = 0.1, test: float = 0.2, seed: int = 0
) -> Split:
    """Split the queries, following the data set's own split if it has train and test.

    Where the own split has no validation part, a share of train becomes one. A data set without a
    split, with a single part or with a split into tasks is divided at random. Random divisions are
    by question.

    Args:
      dataset: the data set.
      validation: share of train, or of all queries if there is no split.
      test: share of all queries if there is no split; unused otherwise.
      seed: seed of the random division.

    Returns:
      Positions [A], [B] and [C] of the queries of the three parts.

    Raises:
      ValueError: a share is out of range; a split has other names or lacks train or test; a
        question is in two parts of the split; there are too few questions.
    """
    if not (validation > 0 and test > 0 and validation + test < 1):
        raise ValueError(
            f"validation and test must be positive shares with a sum below 1, "
            f"got {validation} and {test}"
        )
    questions, sides = _questions(dataset), _sides(dataset)
    if sides is None:
        return Split(*split_by_group(questions, (1 - validation - test, validation, test), seed))
    _refuse_overlap(dataset, sides)
    train, chosen, tested = (np.flatnonzero(sides == side) for side in range(3))
    if not len(chosen):
        kept, cut = split_by_group(questions[train], (1 - validation, validation), seed)
        train, chosen = train[kept], train[cut]
    return Split(train=train, validation=chosen, test=tested)


def overlap(dataset: Dataset) -> Bool[np.ndarray, " N"]:
    """Mark the queries whose question is also in a later part of the data set's own split.

    ``select(dataset, ~overlap(dataset))`` has no question in two parts, and the same test part.

    Returns:
      A mask [N]; all False if the data set has no parts.

    Raises:
      ValueError: a split has other names or lacks train or test.
    """
    sides = _sides(dataset)
    if sides is None:
        return np.zeros(len(dataset.queries), bool)
    same_text = _spread(np.maximum, sides, _texts(dataset))
    same_group = _spread(np.maximum, sides, dataset.groups)
    return np.maximum(same_text, same_group) > sides


def _sides(dataset: Dataset) -> Int[np.ndarray, " N"] | None:
    """Return 0 for train, 1 for validation, 2 for test; None if there are no such parts."""
    names = set(dataset.split or ())
    if len(names) < 2 or not names & PART_NAMES.keys():
        return None
    order = list(Split._fields)
    sides = {PART_NAMES.get(name) for name in names}
    if None in sides or not sides >= {"train", "test"}:
        raise ValueError(
            f"{dataset.name}: a split needs train and test, may have validation and no other "
            f"part, got {sorted(names)}; known names: {', '.join(PART_NAMES)}. Rename them with "
            f"dataclasses.replace(dataset, split=...), or give split=None to cut anew"
        )
    return np.array([order.index(PART_NAMES[name]) for name in dataset.split or ()])


def _refuse_overlap(dataset: Dataset, sides: np.ndarray) -> None:
    marked = np.flatnonzero(overlap(dataset))
    if not len(marked):
        return
    first = marked[0]
    texts, later = _texts(dataset), sides > sides[first]
    same = {
        "text": np.flatnonzero(later & (texts == texts[first])),
        "question": np.flatnonzero(later & (dataset.groups == dataset.groups[first])),
    }
    shared, other = next((what, rows[0]) for what, rows in same.items() if len(rows))
    raise ValueError(
        f"{dataset.name}: {len(marked):,} queries are also in a later part of the split. The "
        f"first is {dataset.query_ids[first]!r} of {Split._fields[sides[first]]} "
        f"({dataset.queries[first]!r:.80}), the same {shared} as {dataset.query_ids[other]!r} of "
        f"{Split._fields[sides[other]]}. Leave them out: select(dataset, ~overlap(dataset))"
    )


def _questions(dataset: Dataset) -> Int[np.ndarray, " N"]:
    """Give each question a number: queries linked by equal texts and groups share one."""
    texts, questions = _texts(dataset), dataset.groups
    while True:
        joined = _spread(np.minimum, _spread(np.minimum, questions, texts), dataset.groups)
        if np.array_equal(joined, questions):
            return questions
        questions = joined


def _texts(dataset: Dataset) -> Int[np.ndarray, " N"]:
    """Give each query the number of its normalised text."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(normalise(q), len(numbers)) for q in dataset.queries])


def _spread(best: np.ufunc, values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Return for each query the maximum or minimum value of the queries equal to it in ``by``."""
    best_of_value = np.empty(by.max() + 1, values.dtype)
    best_of_value[by] = values
    best.at(best_of_value, by, values)
    return best_of_value[by]
