"""A tool in one form, whatever list it comes from, and the text that describes it.

name, text = describe({"name": "send_invoice", "description": "Bills a customer.",
                       "inputSchema": {"properties": {"to": {"description": "who pays"}}}})

send_invoice    Name: send invoice
                Description: Bills a customer.
                Parameters: to: who pays
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxret.runtime.rows import id_of
from jaxret.tools.schema import listed, parameters
from jaxret.tools.words import words

#: Names that lists use for each field; the first one that an object has counts.
IDS = ("id", "_id")
NAMES = ("name", "tool_name", "tool")
DESCRIPTIONS = ("description", "tool_description", "documentation", "text", "summary")
SCHEMAS = ("inputSchema", "input_schema", "parameters", "arguments")
CATEGORIES = ("server", "server_name", "category", "module", "domain")


class Tool(NamedTuple):
    """A tool of a list.

    Attributes:
      id: name in a catalogue; with the category before it if names clash.
      name: name in its list.
      description: what the tool does.
      category: server, category, module or tags that it is listed under.
      parameters: name of each parameter, and its description.
    """

    id: str
    name: str
    description: str = ""
    category: str = ""
    parameters: Mapping[str, str] = {}


class Description(NamedTuple):
    """The id of a tool, and the text that is encoded."""

    name: str
    text: str


def describe(tool: Tool | Mapping[str, Any]) -> Description:
    """Describe a tool in words: name, description, category, and last its parameters, shortened.

    Args:
      tool: a tool, or an object of a list, such as MCP's.

    Returns:
      The id and the text.

    Raises:
      ValueError: if the object has no name, or its fields are not text.
    """
    if not isinstance(tool, Tool):
        tool = tool_of("describe", tool)
    lines = (f"{key.capitalize()}: {value}" for key, value in document(tool).items())
    return Description(tool.id, "\n".join(lines))


def document(tool: Tool) -> dict[str, Any]:
    """Return the fields of a tool as a document of a data set, without empty ones.

    Args:
      tool: the tool.
    """
    fields = {
        "name": words(tool.name) or tool.name,
        "description": tool.description.strip(),
        "category": tool.category,
        "parameters": listed(tool.parameters),
    }
    return {key: value for key, value in fields.items() if value}


def tool_of(
    where: str, fields: Mapping[str, Any], *, name: str | None = None, category: str = ""
) -> Tool:
    """Make a tool of an object of a list.

    Args:
      where: place of the object, for the error message.
      fields: MCP's (``inputSchema``), Anthropic's (``input_schema``) or OpenAI's (``parameters``,
        with or without ``function`` around them); or ``id`` with ``documentation``.
      name: name of an object without one.
      category: category of an object without one.

    Raises:
      ValueError: if there is no name, or a description or category is not a text.
    """
    if isinstance(fields.get("function"), Mapping):
        fields = fields["function"]
    if isinstance(fields.get("documentation"), Mapping):
        fields = {**fields["documentation"], **fields}
    named = next((fields[key] for key in NAMES if fields.get(key) not in (None, "")), name)
    own = next((fields[key] for key in IDS if fields.get(key) not in (None, "")), named)
    if own is None:
        raise ValueError(
            f"{where}: a tool needs a name, got an object with {list(fields)[:6]}; "
            "give it a field 'name'"
        )
    own = id_of(where, own)
    called = own if named is None else id_of(where, named)
    about = _text(where, called, fields, DESCRIPTIONS)
    title = fields.get("title")
    if isinstance(title, str) and _letters(title) != _letters(called):
        about = joined(title, about)
    schema = next((fields[key] for key in SCHEMAS if fields.get(key)), None)
    if isinstance(schema, str) and schema.lstrip().startswith(("{", "[")):
        try:
            schema = json.loads(schema)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: the parameters of {called!r} are not JSON") from error
    category = _text(where, called, fields, CATEGORIES) or category
    return Tool(own, called, about, category, parameters(schema))


def joined(first: Any, second: Any) -> str:
    """Join two sentences; one that is missing, or begins the other, is left out.

    Args:
      first: text or None.
      second: text or None.
    """
    one, other = ((x or "").strip() if isinstance(x, str | None) else "" for x in (first, second))
    if not one or other.lower().startswith(one.lower().rstrip(".")):
        return other
    return f"{one.rstrip('.')}. {other}".strip() if other else one


def _letters(name: str) -> str:
    return "".join(words(name).lower().split())


def _text(where: str, tool: str, fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = fields.get(key)
        if value is None or isinstance(value, Mapping):
            continue
        if not isinstance(value, str):
            raise ValueError(f"{where}: the {key} of {tool!r} must be a string, got {value!r:.60}")
        if value.strip():
            return value.strip()
    return ""
