"""What the models that write and polish queries are asked, and what their answers must hold.

    write     a query for M of the T tools on offer, which the model chooses (section 3)
    polish    the same query in the words that a person would use (Query Polish, section 3)

An answer is checked against the tools that were offered; the authors' code checks the whole
library, and neither the count nor repetitions.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxret.data.dataset import Document
from jaxret.data.templates import name_description
from jaxret.generation.checked_answers import (
    PROMPTS,
    Wrong,
    json_object,
    sentence,
)
from jaxret.generation.docstrings import shorten
from jaxret.llm import Schema, load_prompt, object_schema
from jaxret.runtime.files import json_lines

WRITE = load_prompt(PROMPTS / "write.txt", ("fewest", "most", "examples", "tools"))
POLISH = load_prompt(PROMPTS / "polish.txt", ("functions", "instruction"))
SEEDS = Path(__file__).parent / "examples.jsonl"
TEXT: Schema = {"type": "string"}
POLISH_SCHEMA = object_schema(reasoning=TEXT, instruction=TEXT)


class Draft(NamedTuple):
    """A query as the model wrote it; also an example of one."""

    instruction: str
    functions: tuple[str, ...]  # ids of tools, in order of use
    explanation: str

    def example(self) -> str:
        """One line of JSON, as an answer should be."""
        fields = {
            "functions": list(self.functions),
            "explanation": self.explanation,
            "instruction": self.instruction,
        }
        return json.dumps(fields, ensure_ascii=False)


def seed_examples(library: str, path: Path = SEEDS) -> list[Draft]:
    """The examples that a pool begins with: the library's own, or those of no library."""
    rows = list(json_lines(path, holds="examples", fields=("library", *Draft._fields)))
    own = [row for row in rows if row["library"] == library]
    return [
        Draft(row["instruction"], tuple(row["functions"]), row["explanation"])
        for row in own or [row for row in rows if row["library"] == "any"]
    ]


def descriptions(tools: Mapping[str, Document], *, words: int = 60) -> dict[str, str]:
    """Id to what a question says of each tool: its description, cut to so many words.

    Raises:
      ValueError: a tool has no description.
    """
    names = {
        tool: document.get("name", "") if isinstance(document, dict) else ""
        for tool, document in tools.items()
    }
    return {
        tool: shorten(name_description(document).removeprefix(f"{names[tool]}: "), words)
        for tool, document in tools.items()
    }


def write_question(
    offered: Mapping[str, str], examples: Sequence[Draft], *, fewest: int, most: int
) -> list[dict[str, str]]:
    """Asks for a query.

    Args:
      offered: id to description of T tools.
      examples: good answers.
      fewest: functions of a query.
      most: functions of a query.
    """
    lines = [f"{i}. {tool}: {about}" for i, (tool, about) in enumerate(offered.items(), start=1)]
    return WRITE.messages(
        fewest=str(fewest),
        most=str(most),
        examples="\n".join(example.example() for example in examples) or "(none)",
        tools="\n".join(lines),
    )


def write_schema(offered: Sequence[str], *, fewest: int, most: int) -> Schema:
    """The form of an answer: it cannot name a function that was not offered."""
    functions = {
        "type": "array",
        "items": {"enum": list(offered)},
        "minItems": fewest,
        "maxItems": most,
    }
    return object_schema(functions=functions, explanation=TEXT, instruction=TEXT)


def read_draft(
    text: str, offered: Sequence[str], known: Collection[str], *, fewest: int, most: int
) -> Draft:
    """Reads the query that a model wrote.

    Args:
      text: its answer.
      offered: ids of the T tools.
      known: ids of all tools; tells a function that was not offered from one that is none.
      fewest: functions of a query.
      most: functions of a query.

    Raises:
      Wrong: ``not_json``, ``fields``, ``repeated``, ``not_offered``, ``invented``, ``count`` or
        ``named``.
    """
    content = json_object(text, Draft._fields)
    functions = content["functions"]
    if not isinstance(functions, list) or not all(isinstance(f, str) for f in functions):
        raise Wrong("fields", f"functions must be a list of names, got {functions!r:.60}")
    if len(set(functions)) < len(functions):
        raise Wrong("repeated", "a function is there twice")
    if strangers := [f for f in functions if f not in offered]:
        kind = "not_offered" if all(f in known for f in strangers) else "invented"
        raise Wrong(kind, f"these functions are not in the list: {', '.join(strangers)}")
    if not fewest <= len(functions) <= most:
        raise Wrong("count", f"{len(functions)} functions instead of {fewest} to {most}")
    instruction = sentence(content["instruction"], "instruction")
    _refuse_names(instruction, functions)
    return Draft(
        instruction=instruction,
        functions=tuple(functions),
        explanation=sentence(content["explanation"], "explanation"),
    )


def polish_question(draft: Draft) -> list[dict[str, str]]:
    """Asks for the same query in the words of a person."""
    return POLISH.messages(functions=", ".join(draft.functions), instruction=draft.instruction)


def read_polished(text: str, functions: Sequence[str]) -> str:
    """Reads the polished query.

    Raises:
      Wrong: ``not_json``, ``fields`` or ``named``.
    """
    answer = json_object(text, ("reasoning", "instruction"))
    instruction = sentence(answer["instruction"], "instruction")
    _refuse_names(instruction, functions)
    return instruction


def _refuse_names(instruction: str, functions: Sequence[str]) -> None:
    """Raises `Wrong` (``named``) where a query gives away a function by its name.

    By its id, or by its last part if that is no plain word: ``read_csv`` is not, ``sort`` is.
    """
    for function in functions:
        last = function.rsplit(".", 1)[-1]
        for name in {function, last} - ({last} if last.isalpha() else set()):
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", instruction, re.IGNORECASE):
                raise Wrong("named", f"the request names the function {name}")
