"""Parses tool documents into named fields, and groups the raw names of equivalent fields.

A document comes in one of six forms (`KINDS`):

    object     a dict of fields
    json       a string that holds a JSON object
    python     a string that holds a Python dict, as ToolRet stores its documents
    labelled   ``category_name:Food, tool_name:...``, the running text of ToolLens
    text       any other text, read as the one field ``documentation``
    broken     text that begins like an object but cannot be parsed; kept as text

The string may also be the value of ``documentation`` beside other fields, as in the data sets of
`jaxret.data`. OpenAI's wrapper ``{"type": "function", "function": {...}}`` is removed.

Canonical fields (Tool-REX, A.2, Table 4). The paper names its eight groups twice, and differently:
Table 4 has tags, function, when-to-use and limitations, the list below it category, method, example
usage and limitations. The list fits the raw names: ``category_name`` is a category, ``api_call``
and ``path`` describe how a tool is called, ``example_code`` is an example. The four names of the
table are fields of the *tool profile* that expansion adds, in which ``function`` is a statement of
purpose. The groups here therefore have the list's names, `Group.table` has the table's, and the
fields of a profile are assigned to groups separately (`Group.profile`).

Two more statements of the paper contradict each other. Section 2.3 drops ``example_usage`` because
of an ablation "removing when_to_use"; Section 2.4 shows that ``example_usage`` was meant. The text
has ``function_description`` and ``limitations``, the prompts and examples (Figures 6, 9-11)
``function`` and ``limitation``; published data use the latter, and both are supported.
"""

import json
import re
from typing import Any, NamedTuple

from jaxret.data.dataset import Document, is_empty
from jaxret.data.templates import READERS, parse

KINDS = ("object", *READERS, "labelled", "text", "broken")
ADDED = ("terse", "tool_profile")  # fields that are not part of the original documentation
LABELS = (  # labels of ToolLens, in its order
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
    """A parsed document."""

    kind: str  # one of `KINDS`
    fields: dict[str, Any]  # under the names that the source gives them


class Group(NamedTuple):
    """A canonical field and the raw names that belong to it."""

    table: str  # its name in Table 4
    listed: tuple[str, ...]  # raw names in Table 4, which gives examples only
    added: tuple[str, ...]  # raw names of other data sets
    profile: tuple[str, ...] = ()  # fields of a tool profile


class Audit(NamedTuple):
    """Criteria of completeness that a document meets (Tool-REX, A.3)."""

    states_function: bool
    guides_use: bool

    @property
    def complete(self) -> bool:
        """True if the document meets both criteria."""
        return self.states_function and self.guides_use


GROUPS = {
    "name": Group(
        table="name",
        listed=("name", "name_for_human"),
        added=("api_name", "tool_name", "new_func"),
    ),
    "description": Group(
        table="description",
        listed=("description", "description_for_human", "func_description", "functionality"),
        added=("api_description", "summary", "documentation"),
        profile=("function", "function_description"),
    ),
    "category": Group(
        table="tags",
        listed=("category", "category_name", "domain"),
        added=("tags",),
        profile=("tags",),
    ),
    "parameters": Group(
        table="parameters",
        listed=(
            "parameters",
            "api_arguments",
            "optional_parameters",
            "required_parameters",
            "inputs",
            "additional_required_arguments",
            "optional_arguments",
        ),
        added=("arguments", "input_parameters", "required_params", "optional_params"),
    ),
    "responses": Group(
        table="responses",
        listed=(
            "responses",
            "response",
            "return_data",
            "outputs",
            "result_arguments",
            "template_response",
            "output",
        ),
        added=("returns", "results", "output_parameters", "return_schema"),
    ),
    "method": Group(
        table="function",
        listed=("method", "api_call", "url", "path"),
        added=(),
    ),
    "example_usage": Group(
        table="when-to-use",
        listed=("example_usage", "example_code"),
        added=("when_to_use",),
        profile=("when_to_use", "example_usage"),
    ),
    "limitations": Group(
        table="limitations",
        listed=(
            "limitation",
            "is_transactional",
            "performance",
            "python_environment_requirements",
            "doc_arguments",
        ),
        added=("limitations",),
        profile=("limitation", "limitations"),
    ),
}
BY_NAME = {name: key for key, group in GROUPS.items() for name in group.listed + group.added}
BY_PROFILE = {name: key for key, group in GROUPS.items() for name in group.profile}


def read(document: Document | None) -> Reading:
    """Read a document in any of its forms.

    Returns:
      The kind of the document and its fields.

    Raises:
      TypeError: the document is neither a dict nor a string.
      ValueError: the document is None or has no content.
    """
    if document is not None and not isinstance(document, dict | str):
        raise TypeError(f"a document must be a dict or a string, got {document!r:.60}")
    outer = {"documentation": document} if not isinstance(document, dict) else document
    documentation = outer.get("documentation")
    beside = {key: value for key, value in outer.items() if key != "documentation"}
    if isinstance(documentation, str):
        kind, inside = _read_text(documentation)
    elif isinstance(documentation, dict):
        kind, inside = "object", documentation
    else:
        kind, inside = "object", {} if documentation is None else {"documentation": documentation}
    fields = _unwrapped(beside | inside)
    if is_empty(fields):
        raise ValueError(f"a document must hold something, got {document!r:.60}")
    return Reading(kind=kind, fields=fields)


def original(document: Document) -> dict[str, Any]:
    """Return the fields of the documentation without those that were added to it (`ADDED`).

    Raises:
      TypeError: the document is neither a dict nor a string.
      ValueError: the document has no content but additions.
    """
    return read({k: v for k, v in read(document).fields.items() if k not in ADDED}).fields


def profile(document: Document) -> dict[str, Any]:
    """Return the fields of the tool profile; an empty dict if the document has none.

    Raises:
      TypeError: the value under ``tool_profile`` is not an object.
      ValueError: the document has no content.
    """
    content = read(document).fields.get("tool_profile") or {}
    if not isinstance(content, dict):
        raise TypeError(f"a tool_profile must be an object, got {content!r:.60}")
    return content


def canonical_fields(document: Document) -> dict[str, list[Any]]:
    """Group the values of a document by canonical field.

    The fields of a tool profile count in the groups of `Group.profile`; pass `original` of a
    document to leave the profile out.

    Returns:
      The values that are not empty of every group of `GROUPS`, in the order of the document.

    Raises:
      TypeError: the document is neither a dict nor a string.
      ValueError: the document has no content.
    """
    by_group: dict[str, list[Any]] = {group: [] for group in GROUPS}
    for group, _, value in _grouped(document):
        if group is not None:
            by_group[group].append(value)
    return by_group


def unknown_fields(document: Document) -> dict[str, Any]:
    """Return the fields that are not empty and belong to no group, by their raw names."""
    return {name: value for group, name, value in _grouped(document) if group is None}


def audit(document: Document) -> Audit:
    """Judge by rules whether a document states its function and guides its use (Tool-REX, A.3).

    A function is stated if the canonical field ``description`` says more than the name. Use is
    guided if ``example_usage`` or ``limitations`` has a value. The rules see fields, not prose:
    guidance inside a description is overlooked, so the rules call more documents incomplete than a
    reader does. The fields of a tool profile count.

    Returns:
      Which of the two criteria the document meets.

    Raises:
      TypeError: the document is neither a dict nor a string.
      ValueError: the document has no content.
    """
    fields = canonical_fields(document)
    nothing = {"", *(_letters(name) for name in fields["name"])}
    return Audit(
        states_function=any(_letters(text) not in nothing for text in fields["description"]),
        guides_use=bool(fields["example_usage"] or fields["limitations"]),
    )


def _read_text(text: str) -> Reading:
    if (parsed := parse(text)) is not None:
        return Reading(*parsed)
    if (labelled := _labelled(text)) is not None:
        return Reading("labelled", labelled)
    kind = "broken" if text.lstrip().startswith("{") else "text"
    return Reading(kind, {"documentation": text})


def _labelled(text: str) -> dict[str, Any] | None:
    """Read ToolLens's labels if the text begins with one and has several, in order."""
    matches = list(_LABEL.finditer(text))
    names = [match[1] for match in matches]
    if len(matches) < 2 or matches[0].start() != 0 or names != [x for x in LABELS if x in names]:
        return None
    ends = [match.start() for match in matches[1:]] + [len(text)]
    return {m[1]: _value(text[m.end() : end]) for m, end in zip(matches, ends, strict=True)}


def _value(text: str) -> Any:
    """Parse lists and objects, so that empty ones are recognised; return other text unchanged."""
    try:
        return json.loads(text) if text.lstrip().startswith(("[", "{")) else text
    except json.JSONDecodeError:
        return text


def _unwrapped(fields: dict[str, Any]) -> dict[str, Any]:
    inner = fields.get("function")
    if not isinstance(inner, dict):
        return fields
    return {key: value for key, value in fields.items() if key != "function"} | inner


def _grouped(document: Document) -> list[tuple[str | None, str, Any]]:
    """List (group, raw name, value) of all fields that are not empty, the profile's last."""
    fields = {name: x for name, x in read(document).fields.items() if name != "tool_profile"}
    rows = [(BY_NAME.get(_plain(name)), name, value) for name, value in fields.items()]
    for name, value in profile(document).items():
        rows.append((BY_PROFILE.get(_plain(name)), f"tool_profile.{name}", value))
    return [row for row in rows if not is_empty(row[2])]


def _plain(name: str) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


def _letters(value: object) -> str:
    return re.sub(r"[\W_]+", "", str(value).lower())
