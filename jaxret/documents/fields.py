"""Canonical fields: the names that data sets give to one thing, joined (Tool-REX, A.2, Table 4).

The paper names its eight groups twice, and differently. Table 4 says tags, function, when-to-use
and limitations where the list below it ("the following eight canonical fields") says category,
method, example usage and limitations. The list is right: it defines what the raw names hold
(``category_name`` is a category, ``api_call`` and ``path`` are how a tool is called, and
``example_code`` is an example). The table's four are the fields of the *profile* that expansion
adds, where ``function`` means the opposite of ``path``: a statement of purpose. So the groups
bear the list's names, `Group.table` keeps the table's, and a profile has rows of its own.

Two more places disagree with themselves. Section 2.3 drops ``example_usage`` because of an ablation
"removing when_to_use"; Section 2.4 shows that ``example_usage`` was meant. And the text writes
``function_description`` and ``limitations`` where prompts and examples (Figures 6, 9-11) have
``function`` and ``limitation``; data come with the latter, both are read.
"""

from typing import Any, NamedTuple

from jaxret.data.dataset import Document
from jaxret.documents.reading import is_empty, profile, read


class Group(NamedTuple):
    """A canonical field: its name in Table 4, and the raw names that it joins."""

    table: str
    listed: tuple[str, ...]  # by Table 4, which shows examples only
    added: tuple[str, ...]  # by us, as the data sets at hand have them
    profile: tuple[str, ...] = ()  # fields of a tool profile


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


def canonical_fields(document: Document) -> dict[str, list[Any]]:
    """Every group's values, in the order of the document; empty ones do not count.

    A tool profile is opened: its fields count in the groups of `Group.profile`. Give
    `jaxret.documents.original` of a document to leave it out.

    Raises:
      TypeError, ValueError: see `jaxret.documents.read`.
    """
    by_group: dict[str, list[Any]] = {group: [] for group in GROUPS}
    for group, _, value in _sorted(document):
        if group is not None:
            by_group[group].append(value)
    return by_group


def unknown_fields(document: Document) -> dict[str, Any]:
    """Fields that hold something and have no group, under their raw names."""
    return {name: value for group, name, value in _sorted(document) if group is None}


def _sorted(document: Document) -> list[tuple[str | None, str, Any]]:
    """(group, raw name, value) of all that is not empty, a profile's fields at the end."""
    fields = {name: x for name, x in read(document).fields.items() if name != "tool_profile"}
    rows = [(BY_NAME.get(_plain(name)), name, value) for name, value in fields.items()]
    for name, value in profile(document).items():
        rows.append((BY_PROFILE.get(_plain(name)), f"tool_profile.{name}", value))
    return [row for row in rows if not is_empty(row[2])]


def _plain(name: str) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")
