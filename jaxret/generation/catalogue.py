"""A catalogue of tools from an installed library.

    bank = build_catalogue("numpy")
    write_json_lines(Path("bank/tools.jsonl"), [tool.row() for tool in bank.tools])

NumPy and pandas are introspected, AWS's services read from botocore. Descriptions are the first
paragraphs of the documentation, and tools go by their real names; ToolBank's descriptions were
condensed by a language model, and the functions of NumPy and pandas renamed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxret.validate import require

LIBRARIES = ("numpy", "pandas", "aws")
COUNTS = ("found", "aliases", "inherited", "undocumented", "tools")  # of a package


class Tool(NamedTuple):
    """A function, class, method, property or operation."""

    id: str  # its path: numpy.linalg.inv
    description: str
    parameters: dict[str, dict[str, Any]]  # name to required, and type where it is known

    def row(self) -> dict[str, Any]:
        """A line of ``tools.jsonl`` (`jaxret.data.jsonl`)."""
        documentation = {"description": self.description, "parameters": self.parameters}
        return {"id": self.id, "name": self.id, "documentation": documentation}


class Catalogue(NamedTuple):
    """The tools, ascending by id, and how they were counted."""

    source: str  # library and version
    tools: tuple[Tool, ...]
    counts: Mapping[str, Mapping[str, int]]  # package or service to `COUNTS`


def build_catalogue(library: str, *, words: int = 80) -> Catalogue:
    """Builds the catalogue of a library.

    Args:
      library: one of `LIBRARIES`.
      words: of a description, at most.

    Raises:
      ImportError: the library is not installed.
      ValueError: the library is unknown.
    """
    require("words", words, ">= 1", lambda x: x >= 1)
    require("library", library, f"one of {', '.join(LIBRARIES)}", lambda x: x in LIBRARIES)
    from jaxret.generation import introspect, services  # they make what is defined above

    if library == "aws":
        return services.catalogue(words=words)
    return introspect.catalogue(library, introspect.PACKAGES[library], words=words)
