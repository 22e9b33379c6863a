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

from jaxret.data.dataset import Dataset, Document, Empty, Query, Unknown, build
from jaxret.data.templates import query_text
from jaxret.runtime.files import existing, json_rows
from jaxret.runtime.rows import id_of, labels_of, query_of


def load(
    path: str | Path,
    *,
    name: str | None = None,
    extra: Sequence[str] = (),
    unknown: Unknown = "refuse",
    empty: Empty = "keep",
) -> Dataset:
    """Load a folder of the general layout.

    Args:
      path: the folder.
      name: name of the data set; None: that of the folder.
      extra: more files of tools in the folder, such as distractors; their tools come last.
      unknown: "refuse" labels that name an unknown tool, or "drop" them.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.
    """
    folder = existing(path, "a folder with tools.jsonl and queries.jsonl")
    files = [folder / "tools.jsonl", *(folder / file for file in extra)]
    tools = chain.from_iterable(read_tools(file) for file in files)
    queries = read_queries(folder / "queries.jsonl")
    return build(name or folder.resolve().name, tools, queries, unknown=unknown, empty=empty)


def read_tools(path: Path) -> Iterator[tuple[str, Document]]:
    """Yield (id, document): fields of the documentation and name, domain, terse, tool_profile.

    Raises:
      ValueError: if a line is damaged, or its documentation is neither an object nor text.
    """
    for where, row in json_rows(path, holds="one tool a line", fields=("id", "documentation")):
        tool = id_of(where, row["id"])
        try:
            found = document(row)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        yield tool, found


def read_queries(path: Path) -> Iterator[Query]:
    """Yield the queries; those of one ``question_index`` or ``question`` are a group."""
    for where, row in json_rows(path, holds="one query a line", fields=("id", "query", "labels")):
        name = id_of(where, row["id"])
        yield Query(
            id=name,
            text=query_text(row.get("instruction"), query_of(where, name, row["query"])),
            labels=labels_of(where, name, row["labels"]),
            group=row.get("question_index", row.get("question")),
            split=row.get("split"),
            steps=tuple(
                (step["query"], id_of(where, step["label"])) for step in row.get("steps") or ()
            ),
        )


def document(row: dict[str, Any]) -> Document:
    """Return the document in a row of ``tools.jsonl``.

    Args:
      row: with id and documentation; name, domain, terse and tool_profile become fields too.

    Raises:
      ValueError: the documentation is not an object, a string or null, which is an empty text.
    """
    documentation = row["documentation"]
    if documentation is None or isinstance(documentation, str):
        documentation = {"documentation": documentation or ""}
    if not isinstance(documentation, dict):
        raise ValueError(
            f"the documentation of tool {row['id']!r} must be an object or a string, "
            f"got {documentation!r:.60}"
        )
    before = {key: row[key] for key in ("name",) if key in row}
    beside = {key: row[key] for key in ("domain", "terse", "tool_profile") if key in row}
    return before | documentation | beside
