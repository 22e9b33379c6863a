"""Loads a list of tools in any form that `jaxret.tools.read` takes, with queries or without.

    jr.load_task("tools", "tools.json")                              a catalogue alone
    jr.load_task("tools", "tools.json", queries="queries.jsonl")     with labelled queries

Queries are lines of the general layout (`jaxret.data.jsonl`), or a table with the columns ``query``
and ``labels``, ids separated by ``|``, and perhaps ``id``. Labels are ids of `jaxret.tools.read`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from jaxret.data import jsonl
from jaxret.data.dataset import Dataset, Empty, Query, Unknown, build
from jaxret.runtime.files import existing, table_rows
from jaxret.runtime.rows import query_of
from jaxret.tools import read
from jaxret.tools.reading import Prefix
from jaxret.tools.tool import document


def load(
    path: str | Path,
    *,
    queries: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    prefix: Prefix = "clash",
    unknown: Unknown = "refuse",
    empty: Empty = "keep",
) -> Dataset:
    """Load a list of tools.

    Args:
      path: file of the tools.
      queries: file of the queries, JSON lines or a table (``.csv``, ``.tsv``); None: the data set
        has no queries, which is enough for a live index.
      columns: for a table of tools, field -> name of its column; None: the usual names.
      prefix: "clash" puts the category before names that are not unique, "always" before all.
      unknown: "refuse" labels that name an unknown tool, or "drop" them.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.
    """
    tools = ((tool.id, document(tool)) for tool in read(path, columns=columns, prefix=prefix))
    asked = None if queries is None else _queries(Path(queries))
    return build(Path(path).stem, tools, asked, unknown=unknown, empty=empty)


def _queries(path: Path) -> Iterator[Query]:
    if path.suffix.lower() not in (".csv", ".tsv"):
        existing(path, "a file of queries")
        yield from jsonl.read_queries(path)
        return
    for number, (where, row) in enumerate(table_rows(path, holds="a table of queries")):
        if missing := [column for column in ("query", "labels") if column not in row]:
            raise ValueError(f"{where}: columns {missing} are missing; there are {list(row)}")
        name = row.get("id") or str(number)
        labels = tuple(filter(None, map(str.strip, row["labels"].split("|"))))
        yield Query(id=name, text=query_of(where, name, row["query"]), labels=labels)
