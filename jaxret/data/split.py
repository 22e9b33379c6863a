"""Train, validation and test: what is fitted, what chooses, what is reported.

A part is trusted only if no other part holds its questions. Two queries are of one question if
they are of one group, or if they are the same text once normalised: what is encoded is equal.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxret.data.dataset import PART_NAMES, Dataset, split_by_group
from jaxret.data.templates import normalise


class Split(NamedTuple):
    """Positions of queries, ascending; together all N, each once."""

    train: Int[np.ndarray, " A"]
    validation: Int[np.ndarray, " B"]
    test: Int[np.ndarray, " C"]


def own_split(
    dataset: Dataset, *, validation: float = 0.1, test: float = 0.2, seed: int = 0
) -> Split:
    """Splits the queries, by the data set's own split where it has one.

    A split with train and test is kept; without a validation part of its own, ``validation``
    of train becomes one. A data set without a split, with a single one or with a split into
    tasks is cut whole. Every cut is by question.

    Args:
      dataset: the data set.
      validation: share of train, or of all queries where there is no split.
      test: share of all queries where there is no split; not read otherwise.
      seed: of the cut.

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
    """Marks the queries whose question is also in a later part of the data set's own split.

    Without them (``select(dataset, ~overlap(dataset))``) no two parts share a question, and
    test is as it was.

    Returns:
      a mask [N]; all False where the data set has no parts.

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
    """0 for train, 1 for validation, 2 for test; None where the split makes no such parts."""
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
    """A number a query, equal where a chain of equal texts and equal groups joins two."""
    texts, questions = _texts(dataset), dataset.groups
    while True:
        joined = _spread(np.minimum, _spread(np.minimum, questions, texts), dataset.groups)
        if np.array_equal(joined, questions):
            return questions
        questions = joined


def _texts(dataset: Dataset) -> Int[np.ndarray, " N"]:
    """A number a query, equal where the normalised texts are."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(normalise(q), len(numbers)) for q in dataset.queries])


def _spread(best: np.ufunc, values: np.ndarray, by: np.ndarray) -> np.ndarray:
    """For each query the best (maximum or minimum) value among those equal to it in ``by``."""
    best_of_value = np.empty(by.max() + 1, values.dtype)
    best_of_value[by] = values
    best.at(best_of_value, by, values)
    return best_of_value[by]
