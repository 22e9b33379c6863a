"""The general layout: a folder with ``tools.jsonl`` and ``queries.jsonl``.

    tools.jsonl      id, documentation (object or string); name, domain, terse, tool_profile
    queries.jsonl    id, query, labels (tool ids); instruction, question_index or question,
                     split, steps (objects with query and label)

What stands after the semicolon, and any instruction to split, may be missing; other fields
are not read. Bring your own data in this form.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from jaxret.data.dataset import Dataset, Document, Query, build
from jaxret.data.templates import query_text
from jaxret.runtime.files import existing, json_lines


def load(path: str | Path, *, name: str | None = None, extra: Sequence[str] = ()) -> Dataset:
    """Loads a folder of the general layout.

    Args:
      path: the folder.
      name: what to call the data set; the folder's own name without it.
      extra: more files of tools in the folder, distractors as a rule: they come after the others.
    """
    folder = existing(path, "a folder with tools.jsonl and queries.jsonl")
    files = [folder / "tools.jsonl", *(folder / file for file in extra)]
    tools = chain.from_iterable(read_tools(file) for file in files)
    return build(name or folder.resolve().name, tools, read_queries(folder / "queries.jsonl"))


def read_tools(path: Path) -> Iterator[tuple[str, Document]]:
    """Yields (id, document): the fields of the documentation, with what stands beside it."""
    for row in json_lines(path, holds="one tool a line", fields=("id", "documentation")):
        yield row["id"], document(row)


def read_queries(path: Path) -> Iterator[Query]:
    """Yields the queries; those of one ``question_index`` or ``question`` are a group."""
    for row in json_lines(path, holds="one query a line", fields=("id", "query", "labels")):
        yield Query(
            id=row["id"],
            text=query_text(row.get("instruction"), row["query"]),
            labels=tuple(row["labels"]),
            group=row.get("question_index", row.get("question")),
            split=row.get("split"),
            steps=tuple((step["query"], step["label"]) for step in row.get("steps") or ()),
        )


def document(row: dict[str, Any]) -> Document:
    """The fields of a row of ``tools.jsonl``: its documentation, with what stands beside it."""
    documentation = row["documentation"]
    if isinstance(documentation, str):
        documentation = {"documentation": documentation}
    if not isinstance(documentation, dict):
        raise ValueError(
            f"the documentation of tool {row['id']!r} must be an object or a string, "
            f"got {documentation!r:.60}"
        )
    before = {key: row[key] for key in ("name",) if key in row}
    beside = {key: row[key] for key in ("domain", "terse", "tool_profile") if key in row}
    return before | documentation | beside
