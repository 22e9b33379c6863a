"""Accepted queries as a data set in three parts that share no question."""

from collections.abc import Sequence
from pathlib import Path

from jaxret.data import jsonl
from jaxret.data.dataset import Dataset, Query, build
from jaxret.data.split import Split, own_split
from jaxret.generation.pipeline import Accepted
from jaxret.runtime.files import write_json_lines


def assign(
    accepted: Sequence[Accepted],
    tools: Sequence[str],
    *,
    validation: float,
    test: float,
    seed: int,
    by_tools: bool = False,
) -> list[str]:
    """The part of every query: train, validation or test (`jaxret.data.split`).

    Args:
      accepted: N queries.
      tools: ids of the catalogue.
      validation: share of the queries.
      test: share of the queries.
      seed: of the cut.
      by_tools: puts queries that need the same set of tools into one part.

    Raises:
      ValueError: the shares are out of range, or there are too few queries for three parts.
    """
    rows = [
        Query(
            id=_id(one),
            text=one.query,
            labels=one.draft.functions,
            group=_tool_set(one) if by_tools else None,
        )
        for one in accepted
    ]
    dataset = build("generated", [(tool, {}) for tool in tools], rows)
    cut = own_split(dataset, validation=validation, test=test, seed=seed)
    names = {dataset.query_ids[i]: part for part in Split._fields for i in getattr(cut, part)}
    return [names[_id(one)] for one in accepted]  # no two texts are equal: they would be near


def save(
    folder: Path,
    accepted: Sequence[Accepted],
    split: Sequence[str],
    tools: Sequence[dict],
    *,
    by_tools: bool = False,
) -> Dataset:
    """Writes ``tools.jsonl`` and ``queries.jsonl``, and reads them back with all checks.

    Args:
      folder: of the data set.
      accepted: N queries.
      split: part of each.
      tools: rows of ``tools.jsonl``.
      by_tools: a question is a set of tools: no two parts may share one.

    Raises:
      ValueError: two parts share a text or a question.
    """
    rows = []
    for one, part in zip(accepted, split, strict=True):
        row = {
            "id": _id(one),
            "query": one.query,
            "labels": list(one.draft.functions),
            "split": part,
            "raw": one.draft.instruction,
            "explanation": one.draft.explanation,
        }
        rows.append(row | ({"question": _tool_set(one)} if by_tools else {}))
    write_json_lines(folder / "tools.jsonl", tools)
    write_json_lines(folder / "queries.jsonl", rows)
    dataset = jsonl.load(folder)
    own_split(dataset)  # refuses what two parts share
    return dataset


def _id(one: Accepted) -> str:
    return f"{one.iteration}.{one.slot}"


def _tool_set(one: Accepted) -> str:
    return " + ".join(sorted(one.draft.functions))
