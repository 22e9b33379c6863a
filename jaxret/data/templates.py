"""Renders a document as the text that is encoded.

    orag_ultratool     name, description, arguments, results        ORAG C.1.1
    orag_toolret       name, and the describing fields              ORAG C.1.2
    raw                the documentation as in its source           ToolRet's evaluation
    name_description   name and description only
    terse              name and the one-line documentation          DeskBank's bad documents
    full               every field of the documentation
    sorted_fields      every field as it is, sorted by key            ORAG C.1.4
    functionality      only the field of that name                  ORAG C.4: the bad documents
    expanded           full, and the tool profile                   Tool-REX
    expanded_with_examples    the same, with ``example_usage``, which Tool-REX leaves out

All templates end with `normalise`. A string that holds a JSON object or a Python dict, the form in
which ToolRet stores documents, is parsed into fields first.
"""

import ast
import functools
import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from jaxret.data.dataset import Document
from jaxret.tools.schema import listed, parameters

MAX_CHARACTERS = 8192
DESCRIBING = ("description", "func_description", "functionality")  # ToolRet's names of the field
PROFILE_FIELDS = ("function", "tags", "when_to_use", "limitation")
SCHEMAS = ("inputSchema", "input_schema", "outputSchema", "output_schema")  # of MCP, Anthropic
FIRST = ("name", "description")
READERS = {"json": json.loads, "python": ast.literal_eval}  # parsers of strings


def normalise(text: str) -> str:
    """Strip a text, replace newlines by spaces and cut it at 8,192 characters (ORAG C.1.5).

    Queries are normalised too, so that equal words give equal embeddings on both sides.
    """
    return " ".join(text.strip().splitlines())[:MAX_CHARACTERS]


def query_text(instruction: str | None, query: str) -> str:
    """Return the query, after its instruction if there is one (ORAG C.1.2)."""
    return f"{instruction}\n{query}" if instruction else query


def template(name: str) -> Callable[[Document], str]:
    """Return the template of a name; raise ValueError for an unknown name."""
    if name not in TEMPLATES:
        raise ValueError(f"unknown template {name!r}; known: {', '.join(TEMPLATES)}")
    return TEMPLATES[name]


def _normalised(render: Callable[[Document], str]) -> Callable[[Document], str]:
    @functools.wraps(render)
    def text(document):
        if not (result := normalise(render(document))):
            raise ValueError(f"this template finds no text in document {document!r:.120}")
        return result

    return text


@_normalised
def orag_ultratool(document: Document) -> str:
    """Render name, description, arguments and results, the last two as JSON, unless empty."""
    fields = _fields(document)
    return _lines({key: fields.get(key) for key in ("name", "description", "arguments", "results")})


@_normalised
def orag_toolret(document: Document) -> str:
    """Render the values of the name and the describing fields; as `raw` without the latter."""
    named = _fields(document)
    about = [named[key] for key in DESCRIBING if not _is_empty(named.get(key))]
    if not about:
        return raw(document)
    return "\n".join(_json(part) for part in (named.get("name"), *about) if not _is_empty(part))


@_normalised
def raw(document: Document) -> str:
    """Return the documentation string unchanged, or the fields as one JSON object."""
    text = document.get("documentation") if isinstance(document, dict) else document
    return text if isinstance(text, str) else json.dumps(document, ensure_ascii=False)


@_normalised
def name_description(document: Document) -> str:
    """Render ``name: description``, or one of the two if the other is missing."""
    fields = _fields(document)
    keys = (*DESCRIBING, "api_description", "documentation")
    about = next((fields[key] for key in keys if not _is_empty(fields.get(key))), None)
    return _headed(fields, about)


@_normalised
def terse(document: Document) -> str:
    """Render ``name: terse``, for data sets with a deliberately short documentation."""
    fields = _fields(document)
    return _headed(fields, _needed(fields, "terse"))


@_normalised
def functionality(document: Document) -> str:
    """Render the field ``functionality``, a few ambiguous words in ToolRet-Code (ORAG C.4)."""
    return _flat(_needed(_fields(document), "functionality"))


@_normalised
def full(document: Document) -> str:
    """Render all fields but ``terse`` and the tool profile, nested ones flattened.

    Encoders cut long texts: in a document with a schema (`SCHEMAS`), name and description come
    first, and schemas last, as the names and descriptions of their parameters. Running text is
    returned unchanged.
    """
    named = {k: v for k, v in _fields(document).items() if k not in ("terse", "tool_profile")}
    if named.keys() == {"documentation"}:
        return raw(named)
    if last := {key: listed(parameters(named[key])) for key in SCHEMAS if key in named}:
        first = {key: named[key] for key in FIRST if key in named}
        named = first | {key: x for key, x in named.items() if key not in last} | last
    return _lines({key: _flat(value) for key, value in named.items()})


@_normalised
def sorted_fields(document: Document) -> str:
    """Render ``key: value`` of all fields of `full`, empty ones too, sorted by key (ORAG C.1.4).

    Values that are not strings are JSON. Running text is returned unchanged.
    """
    named = {k: v for k, v in _fields(document).items() if k not in ("terse", "tool_profile")}
    if named.keys() == {"documentation"}:
        return raw(named)
    return "\n".join(f"{key}: {_json(named[key])}" for key in sorted(named))


def with_profile(
    fields: Sequence[str], base: Callable[[Document], str] = full
) -> Callable[[Document], str]:
    """Return a template that appends fields of the tool profile to another template.

    An empty profile, as after a failed expansion, adds nothing.

    Args:
      fields: fields of the profile, in this order; missing ones are left out.
      base: the template of the document without its profile.

    Raises:
      ValueError: the returned template raises it for a document without a tool profile.
    """

    @_normalised
    def expanded(document):
        source = _fields(document)
        profile = {} if source.get("tool_profile") == {} else _needed(source, "tool_profile")
        lines = _lines({key: _flat(profile.get(key)) for key in fields})
        return f"{base(document)}\n{lines}"

    return expanded


TEMPLATES: dict[str, Callable[[Document], str]] = {
    "orag_ultratool": orag_ultratool,
    "orag_toolret": orag_toolret,
    "raw": raw,
    "name_description": name_description,
    "terse": terse,
    "functionality": functionality,
    "full": full,
    "sorted_fields": sorted_fields,
    "expanded": with_profile(PROFILE_FIELDS),
    "expanded_with_examples": with_profile((*PROFILE_FIELDS, "example_usage")),
}

#: Templates that need a field which not every data set has.
NEEDING = ("terse", "functionality", "expanded", "expanded_with_examples")


def _fields(document: Document) -> dict[str, Any]:
    """Return the named fields; running text is the field ``documentation``."""
    if isinstance(document, str):
        document = {"documentation": document}
    parsed = parse(document.get("documentation"))
    if parsed is None:
        return document
    _, fields = parsed
    return {key: value for key, value in document.items() if key != "documentation"} | fields


def parse(text: Any) -> tuple[str, dict[str, Any]] | None:
    """Parse a string that holds one object: its kind in `READERS` and its fields, or None."""
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return None
    for kind, read in READERS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about stray backslashes
                value = read(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict):
            return kind, value
    return None


def _headed(fields: dict[str, Any], about: Any) -> str:
    return ": ".join(_json(part) for part in (fields.get("name"), about) if not _is_empty(part))


def _needed(fields: dict[str, Any], field: str) -> Any:
    if _is_empty(fields.get(field)):
        others = ", ".join(name for name in TEMPLATES if name not in NEEDING)
        raise ValueError(
            f"document {fields.get('name', fields)!r:.80} has no {field!r}, which this template "
            f"needs; templates that work without: {others}"
        )
    return fields[field]


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {}) or (isinstance(value, str) and not value.strip())


def _json(value: Any) -> str:
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _lines(values: dict[str, Any]) -> str:
    """Render ``Field name: value`` lines, in order, without empty fields."""
    return "\n".join(
        f"{key[:1].upper()}{key[1:].replace('_', ' ')}: {_json(value)}"
        for key, value in values.items()
        if not _is_empty(value)
    )


def _flat(value: Any) -> str:
    """Render nested values as ``key: value`` pairs, which encoders read better than brackets."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_flat(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_flat, value))
    return "" if value is None else _json(value)
