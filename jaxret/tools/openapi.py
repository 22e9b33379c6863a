"""Reads the operations of an OpenAPI 3 description as tools.

The name of a tool is the ``operationId``, or method and path. Its description is its summary and
description, its category its tags, its parameters those of path, query and request body; headers
and cookies, which a client sets, are left out. References to parameters and bodies must lie in the
same file.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from jaxret.tools.schema import parameters, resolve, resolved
from jaxret.tools.tool import Tool, joined

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")


def is_openapi(content: Any) -> bool:
    """Return whether an object is an OpenAPI description, of any version."""
    return isinstance(content, Mapping) and ("openapi" in content or "swagger" in content)


def operations(where: str, spec: Mapping[str, Any]) -> Iterator[tuple[str, Tool]]:
    """Yield the place and tool of each operation, in the order of the file.

    Args:
      where: file of the description, for the error message.
      spec: the description.

    Raises:
      ValueError: if its version is not 3.x, it has no paths, or a reference leads nowhere.
    """
    version = str(spec.get("openapi", spec.get("swagger")))
    if not version.startswith("3."):
        raise ValueError(f"{where}: OpenAPI {version} is not read: convert it to 3.0 or 3.1")
    paths = spec.get("paths")
    if not isinstance(paths, Mapping) or not paths:
        raise ValueError(f"{where}: the OpenAPI description has no paths, and so no operations")
    for path, item in paths.items():
        place = f"{where}, {path}"
        item = _resolved(place, item, spec)
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, Mapping):
                place = f"{where}, {method.upper()} {path}"
                yield place, _tool(place, f"{method.upper()} {path}", item, operation, spec)


def _tool(
    where: str,
    called: str,
    item: Mapping[str, Any],
    operation: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> Tool:
    name = operation.get("operationId")
    name = name if isinstance(name, str) and name.strip() else called
    found: dict[str, Any] = {}
    for given in (*(item.get("parameters") or ()), *(operation.get("parameters") or ())):
        one = _resolved(where, given, spec)
        if one.get("in") in ("path", "query"):
            schema = one.get("schema")
            schema = schema if isinstance(schema, Mapping) else {}
            about = {"description": one["description"]} if one.get("description") else {}
            found[str(one.get("name"))] = {**resolved(schema, spec), **about}
    body = _resolved(where, operation.get("requestBody") or {}, spec)
    media = body.get("content")
    media = media if isinstance(media, Mapping) else {}
    json_first = sorted(media, key=lambda kind: "json" not in kind)
    content = media[json_first[0]] if json_first else {}
    schema = content.get("schema") if isinstance(content, Mapping) else None
    in_body = parameters(_resolved(where, schema or {}, spec), spec)
    tags = operation.get("tags")
    tags = tags if isinstance(tags, list) else []
    return Tool(
        id=name,
        name=name,
        description=joined(operation.get("summary"), operation.get("description")),
        category=", ".join(map(str, tags)),
        parameters=parameters({"properties": found}, spec) | in_body,
    )


def _resolved(where: str, node: Any, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found = resolve(node, spec)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if not isinstance(found, Mapping):
        raise ValueError(f"{where}: expected an object, got {found!r:.60}")
    return found
