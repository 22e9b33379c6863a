"""What a tool's document says, field by field, whatever form it comes in.

    object     a dict of fields
    json       a string that holds a JSON object
    python     a string that holds a Python dict, as ToolRet stores its documents
    labelled   ``category_name:Food, tool_name:...``: ToolLens's running text
    text       any other text: the one field ``documentation``
    broken     text that begins like an object and is none; kept as text, and told apart

A string may also stand under ``documentation`` beside other fields, as the data sets of
`jaxret.data` have it. ``{"type": "function", "function": {...}}``, the form of OpenAI's tools, is
opened.
"""

import json
import re
from typing import Any, NamedTuple

from jaxret.data.dataset import Document
from jaxret.data.templates import READERS, parse

KINDS = ("object", *READERS, "labelled", "text", "broken")
ADDED = ("terse", "tool_profile")  # fields that are not of the original documentation
LABELS = (  # of ToolLens, in its order
    "category_name",
    "tool_name",
    "api_name",
    "api_description",
    "required_params",
    "optional_params",
    "return_schema",
)
_LABEL = re.compile(rf"(?:^|, )({'|'.join(LABELS)}):\s*")


class Reading(NamedTuple):
    """One of `KINDS`, and the fields under the names that the source gives them."""

    kind: str
    fields: dict[str, Any]


def read(document: Document | None) -> Reading:
    """Reads a document in any of its forms.

    Raises:
      TypeError: it is neither an object nor a string.
      ValueError: it is None, or holds nothing at all.
    """
    if document is not None and not isinstance(document, dict | str):
        raise TypeError(f"a document must be a dict or a string, got {document!r:.60}")
    outer = {"documentation": document} if not isinstance(document, dict) else document
    documentation = outer.get("documentation")
    beside = {key: value for key, value in outer.items() if key != "documentation"}
    if isinstance(documentation, str):
        kind, inside = _inside(documentation)
    elif isinstance(documentation, dict):
        kind, inside = "object", documentation
    else:
        kind, inside = "object", {} if documentation is None else {"documentation": documentation}
    fields = _opened(beside | inside)
    if is_empty(fields):
        raise ValueError(f"a document must hold something, got {document!r:.60}")
    return Reading(kind=kind, fields=fields)


def original(document: Document) -> dict[str, Any]:
    """The fields of the documentation, without what was added to it (`ADDED`).

    Raises:
      ValueError: nothing but additions is there.
    """
    return read({k: v for k, v in read(document).fields.items() if k not in ADDED}).fields


def profile(document: Document) -> dict[str, Any]:
    """The fields of the tool profile; none where the document has none.

    Raises:
      TypeError: what stands under ``tool_profile`` is no object.
    """
    content = read(document).fields.get("tool_profile") or {}
    if not isinstance(content, dict):
        raise TypeError(f"a tool_profile must be an object, got {content!r:.60}")
    return content


def is_empty(value: Any) -> bool:
    """Nothing, blank text, or a collection of such; False and 0 say something."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_empty, value))
    return value is None or (isinstance(value, str) and not value.strip())


def _inside(text: str) -> Reading:
    if (parsed := parse(text)) is not None:
        return Reading(*parsed)
    if (labelled := _labelled(text)) is not None:
        return Reading("labelled", labelled)
    kind = "broken" if text.lstrip().startswith("{") else "text"
    return Reading(kind, {"documentation": text})


def _labelled(text: str) -> dict[str, Any] | None:
    """The labels' values, if the text begins with one and has more of them, in order."""
    matches = list(_LABEL.finditer(text))
    names = [match[1] for match in matches]
    if len(matches) < 2 or matches[0].start() != 0 or names != [x for x in LABELS if x in names]:
        return None
    ends = [match.start() for match in matches[1:]] + [len(text)]
    return {m[1]: _value(text[m.end() : end]) for m, end in zip(matches, ends, strict=True)}


def _value(text: str) -> Any:
    """Lists and objects as such, so that empty ones are seen; the rest as it is written."""
    try:
        return json.loads(text) if text.lstrip().startswith(("[", "{")) else text
    except json.JSONDecodeError:
        return text


def _opened(fields: dict[str, Any]) -> dict[str, Any]:
    inner = fields.get("function")
    if not isinstance(inner, dict):
        return fields
    return {key: value for key, value in fields.items() if key != "function"} | inner
