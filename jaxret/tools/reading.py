"""Reads lists of tools in the forms that servers, frameworks and tables use.

    {"tools": [TOOL, ..]}            MCP's tools/list, also inside "result"
    [TOOL, ..]                       a bare list; pages of tools/list; OpenAI's, Anthropic's
    {"github": {"tools": [..]}}      by server, by category or by module: lists or mappings
    {"servers": [{"name": "github", "tools": [..]}]}     nested to any depth
    {"openapi": "3.1.0", "paths": {..}}                  operations (`jaxret.tools.openapi`)

A file is JSON, YAML (``.yaml``, ``.yml``), JSON lines (``.jsonl``: one per line) or a table with a
header (``.csv``, ``.tsv``). An object is a parsed file, or a list of tools of the MCP package.

A tool's id is its name. If different tools share a name, the category is put before it
(``github.search``), as with ``prefix="always"`` for every tool.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from jaxret.runtime.files import existing, json_rows, read_json, table_rows, text_lines
from jaxret.runtime.validate import require_one_of
from jaxret.tools.openapi import is_openapi, operations
from jaxret.tools.tool import CATEGORIES, DESCRIPTIONS, IDS, NAMES, SCHEMAS, Tool, tool_of

Prefix: TypeAlias = Literal["clash", "always"]

#: Keys of an object that holds tools or groups of tools.
HOLDERS = ("tools", "functions", "servers", "mcpServers", "categories", "modules", "result")
#: Columns of a table, by field.
COLUMNS = {
    "id": IDS,
    "name": NAMES,
    "description": DESCRIPTIONS,
    "parameters": SCHEMAS,
    "category": CATEGORIES,
}
EXPECTED = "a tool (an object with a name) or a group of tools (see jaxret.tools.reading)"


class _Found(NamedTuple):
    where: str
    tool: Tool


def read(
    source: Any, *, columns: Mapping[str, str] | None = None, prefix: Prefix = "clash"
) -> list[Tool]:
    """Read a list of tools.

    Args:
      source: a file, its content as an object, or a list of tools of this or of the MCP package.
      columns: for a table, field -> name of its column; fields are id, name, description,
        parameters and category. None: the usual names.
      prefix: "clash" puts the category before names that are not unique, "always" before all.

    Returns:
      The tools, in their order and with different ids; equal tools once.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if there are no tools, the list is not complete, an object is not a tool, two
        tools of one id differ, or a file is damaged; with file, place and id.
    """
    require_one_of("prefix", prefix, ("clash", "always"))
    if isinstance(source, str | Path):
        path = existing(source, "a file of tools")
        if path.is_dir():
            raise ValueError(f"{path} is a folder: give a file of tools")
        found = list(_of_file(path, columns))
        where = str(path)
    else:
        where = "source"
        found = list(_of_content(source, where))
    if not found:
        raise ValueError(f"{where}: there is no tool; expected {EXPECTED}")
    return _with_ids(found, prefix)


def _of_file(path: Path, columns: Mapping[str, str] | None) -> Iterator[_Found]:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        for where, row in table_rows(path, holds="a table of tools"):
            yield _Found(where, tool_of(where, _of_row(where, row, columns)))
        return
    if columns is not None:
        raise ValueError(f"columns= are those of a table (.csv, .tsv), got {path}")
    if suffix in (".jsonl", ".ndjson"):
        for where, row in json_rows(path, holds="a tool a line", fields=()):
            yield from _walk(row, where)
    elif suffix in (".yaml", ".yml"):
        yield from _of_content(_yaml(path), str(path))
    else:
        yield from _of_content(read_json(path, "a list of tools"), str(path))


def _of_content(content: Any, where: str) -> Iterator[_Found]:
    content = _plain(content)
    if is_openapi(content):
        yield from (_Found(*one) for one in operations(where, content))
        return
    last = _plain(content[-1]) if isinstance(content, list) and content else content
    page = last.get("result", last) if isinstance(last, Mapping) else {}
    if isinstance(page, Mapping) and (cursor := page.get("nextCursor")):
        raise ValueError(
            f"{where}: the list is not complete, its nextCursor is {cursor!r:.40}: ask the server "
            "for all pages, and give a list of them"
        )
    yield from _walk(content, where)


def _walk(node: Any, where: str, category: str = "") -> Iterator[_Found]:
    """Yield the tools in a list, a group or a tool."""
    node = _plain(node)
    if isinstance(node, Tool):
        yield _Found(where, node)
    elif isinstance(node, list):
        for place, one in enumerate(node):
            yield from _walk(one, f"{where}[{place}]", category)
    elif not isinstance(node, Mapping):
        raise ValueError(f"{where}: expected {EXPECTED}, got {node!r:.60}")
    elif holder := _holder(node):
        if rest := [key for key, one in node.items() if key != holder and _has_schemas(one)]:
            raise ValueError(
                f"{where}: both {holder!r} and {rest[0]!r} hold tools: give one of them, or all as "
                "groups of one object"
            )
        own = next((node[key] for key in (*CATEGORIES, "name") if _is_text(node.get(key))), "")
        inner = f"{where}, {own}" if own else where
        inside = [] if node[holder] is None else _plain(node[holder])
        yield from _walk_group(inside, f"{inner}, {holder}", own or category)
    elif _is_tool(node) or _is_described(node):
        yield _Found(where, tool_of(where, node, category=category))
    else:
        yield from _walk_group(node, where, category)


def _walk_group(node: Any, where: str, category: str) -> Iterator[_Found]:
    """Yield the tools of a list, or of a mapping from names to tools or to groups."""
    if not isinstance(node, Mapping) or _holder(node):
        yield from _walk(node, where, category)
        return
    for key, one in node.items():
        one, place = _plain(one), f"{where}, {key}"
        tool = isinstance(one, Mapping) and not _holder(one)
        if tool and (_is_tool(one) or _is_described(one)):
            yield _Found(place, tool_of(place, one, name=str(key), category=category))
        elif isinstance(one, list | Mapping):
            yield from _walk(one, place, str(key))
        else:
            raise ValueError(f"{place}: expected {EXPECTED}, got {one!r:.60}")


def _is_described(node: Mapping[str, Any]) -> bool:
    """Return whether an object without a name is a tool, whose name may be its key."""
    described = any(isinstance(node.get(field), str) for field in DESCRIPTIONS)
    return described or any(field in node for field in SCHEMAS)


def _holder(node: Mapping[str, Any]) -> str | None:
    """Return the key under which an object holds tools or groups; None for a tool."""
    if _is_tool(node) and any(field in node for field in SCHEMAS):
        return None
    for key in HOLDERS:
        inside = node.get(key, "")
        if (inside is None or inside == []) and key in HOLDERS[:2]:
            return key  # a server without tools
        listed = isinstance(inside, list) and inside and not any(map(_is_text, inside))
        if listed or isinstance(inside, Mapping):
            return key
    return None


def _is_tool(node: Mapping[str, Any]) -> bool:
    inner = node.get("function")
    return isinstance(inner, Mapping) or any(
        _is_text(node.get(key)) or isinstance(node.get(key), int) for key in (*NAMES, *IDS)
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _has_schemas(node: Any) -> bool:
    """Return whether a value is a list whose first object has the parameters of a tool."""
    first = node[0] if isinstance(node, list) and node else None
    return isinstance(first, Mapping) and any(key in first for key in (*SCHEMAS, "function"))


def _plain(node: Any) -> Any:
    """Return an object of the MCP package, or another model of pydantic, as plain content."""
    if isinstance(node, str | Mapping | Tool | None):
        return node
    if hasattr(node, "to_mcp_tool"):  # FastMCP's
        node = node.to_mcp_tool()
    if hasattr(node, "model_dump"):
        return node.model_dump(mode="json", by_alias=True, exclude_none=True)
    return list(node) if isinstance(node, Sequence) else node


def _of_row(where: str, row: dict[str, str], columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the fields of a row of a table."""
    for field, column in (columns or {}).items():
        require_one_of("columns", field, COLUMNS)
        if column not in row:
            raise ValueError(f"{where}: no column {column!r}; there are {list(row)}")
    lower = {column.strip().lower(): column for column in row}
    usual = {
        field: next((lower[name.lower()] for name in names if name.lower() in lower), None)
        for field, names in COLUMNS.items()
    }
    places = usual | dict(columns or {})
    if places["name"] is None and places["id"] is None:
        raise ValueError(
            f"{where}: no column holds a name; there are {list(row)}: give "
            "columns={'name': COLUMN, 'description': COLUMN}"
        )
    return {field: row[column] for field, column in places.items() if column is not None}


def _yaml(path: Path) -> Any:
    import yaml  # a tenth of a second that other formats do not need

    try:
        return yaml.safe_load("".join(text_lines(path, "a list of tools")))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or "unknown characters"
        raise ValueError(f"{path}{line}: not YAML: {problem}") from error


def _with_ids(found: list[_Found], prefix: Prefix) -> list[Tool]:
    """Merge equal tools, and put categories before names that are not unique."""
    different: list[_Found] = []
    by_id: dict[str, list[Tool]] = {}
    for one in found:
        same = by_id.setdefault(one.tool.id, [])
        if one.tool not in same:
            same.append(one.tool)
            different.append(one)
    named: dict[str, _Found] = {}
    for where, tool in different:
        clash = len(by_id[tool.id]) > 1
        if tool.category and tool.id == tool.name and (clash or prefix == "always"):
            tool = tool._replace(id=f"{tool.category}.{tool.name}")
        if (first := named.get(tool.id)) is not None:
            raise ValueError(
                f"{where}: tool {tool.id!r} differs from that of {first.where}: rename one, or "
                "group the lists by server, {'server': [..]}, whose names then come before it"
            )
        named[tool.id] = _Found(where, tool)
    return [one.tool for one in named.values()]
