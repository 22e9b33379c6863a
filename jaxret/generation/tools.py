"""A tool as a catalogue lists it, and the catalogue on disk."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
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


def save_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes JSON lines, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    temporary.write_text("".join(lines), encoding="utf-8")
    os.replace(temporary, path)
