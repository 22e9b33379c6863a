"""A catalogue of tools: what each is, and how they were counted.

Made from installed libraries by `jaxret.generation.libraries.build_catalogue`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

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
