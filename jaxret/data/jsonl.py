"""Loads the general layout: a folder with ``tools.jsonl`` and ``queries.jsonl``.

    tools.jsonl      id, documentation (object or string); name, domain, terse, tool_profile
    queries.jsonl    id, query, labels (tool ids); instruction, question_index or question,
                     split, steps (objects with query and label)

The fields after the semicolons are optional; other fields are not read. This is the layout for
data of your own.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from jaxret.data.dataset import Dataset, Document, Query, build
from jaxret.data.templates import query_text
from jaxret.runtime.files import existing, json_lines


def load(
    path: str | Path,
    *,
    name: str | None = None,
    extra: Sequence[str] = (),
    none_right: bool = False,
) -> Dataset:
    """Load a folder of the general layout.

    Args:
      path: the folder.
      name: name of the data set; None: that of the folder.
      extra: more files of tools in the folder, such as distractors; their tools come last.
      none_right: whether queries may have no label, which means that no tool is right for them.
    """
    folder = existing(path, "a folder with tools.jsonl and queries.jsonl")
    files = [folder / "tools.jsonl", *(folder / file for file in extra)]
    tools = chain.from_iterable(read_tools(file) for file in files)
    queries = read_queries(folder / "queries.jsonl")
    return build(name or folder.resolve().name, tools, queries, none_right=none_right)


def read_tools(path: Path) -> Iterator[tuple[str, Document]]:
    """Yield (id, document): fields of the documentation and name, domain, terse, tool_profile."""
    for row in json_lines(path, holds="one tool a line", fields=("id", "documentation")):
        yield row["id"], document(row)


def read_queries(path: Path) -> Iterator[Query]:
    """Yield the queries; those of one ``question_index`` or ``question`` are a group."""
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
    """Return the document in a row of ``tools.jsonl``.

    Args:
      row: with id and documentation; name, domain, terse and tool_profile become fields too.

    Raises:
      ValueError: the documentation is neither an object nor a string.
    """
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
