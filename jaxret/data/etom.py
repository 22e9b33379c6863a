"""Loads ETOM (MSC-Bench): tools of real MCP servers, several of which may serve a query.

From github.com/snooow1029/ETOM, ``data`` (Dong et al. 2025, arXiv 2510.19423; its README says MIT):

    mcp_registry.json       servers: server_name, server_summary and tools, each with tool_name,
                            tool_description and input_schema
    queries/level_N.json    query_id, query and ground_truth_tools: objects with a tool_id, or
                            lists of those that serve equally

or the same in the general layout (`jaxret.data.jsonl`), its queries with ``level`` and
``alternatives``, lists of the ids of tools that serve equally:

    level 1    one tool, whose server is mostly named in the query         781 queries
    level 2    any one of the labels is right; 166 queries have several    772
    level 3    a plan: several tools of one server, in order               327
    level 4    a plan: several tools of several servers, as a graph        103

The queries of level 5, which no tool serves, have no label and are not read.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jaxret.data.dataset import Dataset, Document, Empty, Query, Unknown, build
from jaxret.data.jsonl import read_tools
from jaxret.runtime.files import existing, json_rows, read_json
from jaxret.runtime.rows import id_of, query_of

ANY_SERVES, PLAN = (1, 2), (3, 4)  # what several labels mean, by level
MISNAMED = "l2_42"  # query whose tool id is not in the registry
OF_SCHEMAS = ("$schema", "additionalProperties")  # fields about the schema, not the tool


def load(
    path: str | Path,
    *,
    levels: Sequence[int] = ANY_SERVES,
    unknown: Unknown = "refuse",
    empty: Empty = "keep",
) -> Dataset:
    """Load the queries of some levels and all 2,375 tools; the split is the level.

    Labels are all tools that a query names, with blanks stripped from their ids. At levels 1 and 2
    each label is a right answer. At levels 3 and 4 the labels are the tools of a plan, whose order
    and dependencies are not read; the data set then has another name.

    Args:
      path: the folder ``data``, or a folder of the general layout.
      levels: some of 1 and 2, or some of 3 and 4.
      unknown: "refuse" labels that name an unknown tool, or "drop" them.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.

    Raises:
      ValueError: if a file is damaged, or levels of both kinds are mixed.
    """
    kind = next((k for k in (ANY_SERVES, PLAN) if levels and set(levels) <= set(k)), None)
    if kind is None:
        raise ValueError(
            "levels must be of 1 and 2, where any label serves, or of 3 and 4, where the labels "
            f"are a plan, got {list(levels)}"
        )
    folder = existing(path, "mcp_registry.json and queries/level_*.json, or the general layout")
    if (folder / "tools.jsonl").is_file():
        tools, queries = read_tools(folder / "tools.jsonl"), _converted(folder, levels)
    else:
        tools, queries = _registry(folder / "mcp_registry.json"), _original(folder, levels)
    named = ((tool, _document(fields)) for tool, fields in tools)
    name = "etom" if kind == ANY_SERVES else "etom-plans"
    return build(name, named, queries, unknown=unknown, empty=empty)


def _document(fields: Document) -> Document:
    """Remove fields about the JSON schema of the parameters."""
    if not isinstance(fields, dict) or not isinstance(fields.get("parameters"), dict):
        return fields
    schema = {key: x for key, x in fields["parameters"].items() if key not in OF_SCHEMAS}
    return fields | {"parameters": schema}


def _query(name: str, text: str, level: int, alternatives: Iterable[Iterable[str]]) -> Query:
    labels = dict.fromkeys(tool.strip() for equal in alternatives for tool in equal)
    return Query(id=name, text=text, labels=tuple(labels), split=f"level_{level}")


def _converted(folder: Path, levels: Sequence[int]) -> Iterator[Query]:
    fields = ("id", "query", "level", "alternatives")
    rows = json_rows(folder / "queries.jsonl", holds="one query a line", fields=fields)
    for where, row in rows:
        if row["level"] in levels:
            name = id_of(where, row["id"])
            text = query_of(where, name, row["query"])
            yield _query(name, text, row["level"], row["alternatives"])


def _registry(file: Path) -> Iterator[tuple[str, Document]]:
    """Yield (id, document); a tool that is listed again keeps its first document."""
    first: dict[str, Document] = {}
    for server in read_json(file, "the servers and their tools")["servers"]:
        name = server["server_name"]
        for tool in server["tools"]:
            document = {
                "name": tool["tool_name"],
                "description": tool["tool_description"],
                "server": name,
                "server_summary": server["server_summary"],
                "parameters": tool["input_schema"],
            }
            tool_id = f"{name}::{tool['tool_name']}"
            yield tool_id, first.setdefault(tool_id, document)


def _original(folder: Path, levels: Sequence[int]) -> Iterator[Query]:
    for level in sorted(set(levels)):
        rows = read_json(folder / "queries" / f"level_{level}.json", "a list of queries")
        for row in rows:
            name, steps = f"l{level}_{row['query_id']}", row["ground_truth_tools"]
            equal = ([step] if isinstance(step, dict) else step for step in steps)
            tools = ([tool["tool_id"] for tool in some] for some in equal)
            if name != MISNAMED:
                yield _query(name, row["query"], level, tools)
