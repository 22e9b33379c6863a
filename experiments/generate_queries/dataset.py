"""Writes accepted queries as a data set in three parts, and counts their tools (C.4)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from jaxret.data import jsonl
from jaxret.data.dataset import Dataset, Query, build
from jaxret.data.split import Split, own_split
from jaxret.generation import Accepted
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
    """Return the part of every query: train, validation or test (`jaxret.data.split`)."""
    rows = [
        Query(
            id=_id(one),
            text=one.query,
            labels=one.draft.functions,
            group=_tool_set(one) if by_tools else None,
        )
        for one in accepted
    ]
    dataset = build("generated", [(tool, tool) for tool in tools], rows)
    cut = own_split(dataset, validation=validation, test=test, seed=seed)
    names = {dataset.query_ids[i]: part for part in Split._fields for i in getattr(cut, part)}
    return [names[_id(one)] for one in accepted]  # equal texts are near, so refused


def save(
    folder: Path,
    accepted: Sequence[Accepted],
    split: Sequence[str],
    tools: Sequence[dict],
    *,
    by_tools: bool = False,
) -> Dataset:
    """Write ``tools.jsonl`` and ``queries.jsonl``, and read them back with all checks."""
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
    own_split(dataset)  # raises if parts share queries or tools
    return dataset


def summary(labels: Sequence[Sequence[str]], tools: Sequence[str]) -> dict[str, float]:
    """Count N queries and the tools that they need, of the I tools of a catalogue.

    Returns:
      ``queries``: N. ``functions``: mean number of tools of a query. ``combinations``: number of
      different sets of tools (the paper: 19,530 of about 20,000 for NumPy). ``pairs``: number of
      different pairs. ``covered``: share of tools with a query. ``evenness``: entropy of tool use
      over its maximum, log I.
    """
    used = Counter(tool for tools_of_query in labels for tool in tools_of_query)
    shares = np.array(list(used.values()), np.float64) / max(used.total(), 1)
    return {
        "queries": len(labels),
        "functions": used.total() / max(len(labels), 1),
        "combinations": len({frozenset(tools_of_query) for tools_of_query in labels}),
        "pairs": len(_pairs(labels)),
        "covered": len(used) / len(tools),
        "evenness": float(-(shares * np.log(shares)).sum() / np.log(max(len(tools), 2))),
    }


def tool_pairs(labels: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """List the pairs of tools that some of N queries needs together, the most frequent first.

    Returns:
      Rows with ``tools``, the number of ``queries`` and ``lift``, the ratio of this number to its
      expectation if the tools of a query were independent: ``N n_ab / (n_a n_b)``.
    """
    used = Counter(tool for needed in labels for tool in set(needed))
    return [
        {"tools": [a, b], "queries": n, "lift": len(labels) * n / (used[a] * used[b])}
        for (a, b), n in sorted(_pairs(labels).items(), key=lambda item: (-item[1], item[0]))
    ]


def _id(one: Accepted) -> str:
    return f"{one.iteration}.{one.slot}"


def _tool_set(one: Accepted) -> str:
    return " + ".join(sorted(one.draft.functions))


def _pairs(labels: Iterable[Sequence[str]]) -> Counter[tuple[str, str]]:
    return Counter(pair for needed in labels for pair in combinations(sorted(set(needed)), 2))
