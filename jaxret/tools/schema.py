"""Names and descriptions of parameters, from a JSON Schema or a plainer list of them.

References within the document (``#/$defs/Address``) are followed, and parts joined with ``allOf``,
``anyOf`` or ``oneOf`` are merged. Fields of an object are listed with their parameter, one level
deep. Types and defaults are left out: a request seldom mentions them.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from jaxret.tools.words import words

JOINED = ("allOf", "anyOf", "oneOf")
LONGEST = 100  # characters of the description of a parameter
TOTAL = 600  # characters of all parameters, about 150 tokens


def resolve(node: Any, root: Any) -> Any:
    """Follow the reference of a node; keys beside ``$ref`` replace those of its target.

    Args:
      node: part of a document; one without ``$ref`` is returned unchanged.
      root: whole document, in which the reference points.

    Raises:
      ValueError: if the reference points to another file, to nothing, or to itself.
    """
    seen = set()
    while isinstance(node, Mapping) and "$ref" in node:
        reference = node["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise ValueError(f"$ref {reference!r} points to another file: bundle all in one file")
        if reference in seen:
            raise ValueError(f"$ref {reference!r} points to itself")
        seen.add(reference)
        target = root
        for part in unquote(reference[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            raise ValueError(f"$ref {reference!r} points to nothing")
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def parameters(schema: Any, root: Any = None, depth: int = 2) -> dict[str, str]:
    """List the parameters of a schema, the required ones first.

    Args:
      schema: a JSON Schema of an object; a mapping from names to schemas or descriptions; a list of
        objects with ``name`` and ``description``; or names, separated by commas.
      root: document of the references; None: the schema itself.
      depth: levels of fields to list; 1 lists no fields of parameters.

    Returns:
      Name of each parameter, or ``name.field``, and its description, which may be empty. A
      reference that leads nowhere has no description.
    """
    if isinstance(schema, str):
        return {name.strip(): "" for name in schema.split(",") if name.strip()}
    if isinstance(schema, list):
        named = [one for one in schema if isinstance(one, Mapping) and "name" in one]
        return {str(one["name"]): _about(one) for one in named}
    root = schema if root is None else root
    parts = list(_parts(schema, root, set()))
    if not parts:
        return {}
    fields = {name: one for part in parts for name, one in _fields(part).items()}
    required = {name for part in parts for name in _listed(part.get("required"))}
    found: dict[str, str] = {}
    for name in sorted(fields, key=lambda name: name not in required):  # stable
        field = fields[name]
        found[name] = _about(resolved(field, root))
        if depth > 1 and isinstance(field, Mapping):
            inner = resolved(field, root)
            inner = inner.get("items", inner) if isinstance(inner, Mapping) else {}
            if any("properties" in part for part in _parts(inner, root, set())):
                below = parameters(inner, root, depth - 1)
                found |= {f"{name}.{key}": about for key, about in below.items()}
    return found


def listed(found: Mapping[str, str]) -> str:
    """Render parameters as ``name: description, ...``, cut at `TOTAL` characters.

    Args:
      found: name of each parameter, and its description.
    """
    lines, length = [], 0
    for name, about in found.items():
        line = f"{words(name)}: {about}" if about else words(name)
        if lines and length + len(line) > TOTAL:
            break
        lines.append(line)
        length += len(line) + 2
    return ", ".join(lines)


def _parts(schema: Any, root: Any, above: set[int]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the parts joined to it; a part that contains itself, once."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or len(above) > 20:
        return
    yield schema
    for key in JOINED:
        for part in _listed(schema.get(key)):
            if id(part) not in above:
                yield from _parts(part, root, above | {id(part)})


def resolved(node: Any, root: Any) -> Any:
    """Follow the reference of a node; one that leads nowhere gives an empty node."""
    try:
        return resolve(node, root)
    except ValueError:
        return {}


def _fields(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a schema, or the mapping itself if it is not a schema."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        return properties
    if isinstance(schema.get("type"), str) or any(key in schema for key in (*JOINED, "$schema")):
        return {}
    plain = {k: v for k, v in schema.items() if isinstance(v, Mapping | str)}
    return plain if len(plain) == len(schema) else {}


def _about(field: Any) -> str:
    """Return what a field says of itself: its description, and the values that it allows."""
    if isinstance(field, str):
        text, values = field, []
    elif isinstance(field, Mapping):
        text, values = field.get("description"), _listed(field.get("enum"))
    else:
        return ""
    text = " ".join(text.split()) if isinstance(text, str) else ""
    options = ", ".join(str(value) for value in values if value is not None)
    about = " ".join([text, f"({options})"]) if text and options else text or options
    return about if len(about) <= LONGEST else about[:LONGEST].rsplit(" ", 1)[0] + " .."


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
