"""Loads prompts from text files with placeholders.

    write = load_prompt(Path(__file__).parent / "prompts" / "write.txt", ("tools", "examples"))
    messages = write.messages(tools=.., examples=..)

A placeholder is ``$name`` or ``${name}``, and ``$$`` is a dollar sign; braces have no meaning, so
that a prompt may contain JSON. A line of three dashes separates the system's message from the
user's; a file without one is the user's message.
"""

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from jaxret.runtime.files import existing

ROLES = ("system", "user")


class Prompt(NamedTuple):
    """The messages of one question, with placeholders. Create it with `load_prompt`."""

    name: str
    placeholders: tuple[str, ...]
    parts: tuple[tuple[str, Template], ...]  # (role, text)

    def messages(self, **values: str) -> list[dict[str, str]]:
        """Fills in the placeholders.

        Args:
          **values: the text of every placeholder; a ``$`` in a text is not a placeholder.

        Returns:
          Messages with ``role`` and ``content``.

        Raises:
          ValueError: a placeholder has no value, or a value no placeholder.
        """
        _refuse(self.name, "the values", set(values), set(self.placeholders))
        return [
            {"role": role, "content": text.substitute(values).strip()} for role, text in self.parts
        ]


def load_prompt(path: Path, placeholders: Sequence[str]) -> Prompt:
    """Reads a prompt.

    Args:
      path: the text file.
      placeholders: the names of all placeholders in the file.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a lone ``$``; more than one line of dashes; an empty message; placeholders other
        than the ones named.
    """
    text = existing(path, "a prompt").read_text(encoding="utf-8")
    messages = [part.strip() for part in ("\n" + text).split("\n---\n")]
    if len(messages) > len(ROLES) or not all(messages):
        raise ValueError(
            f"{path}: expected the system's message, a line ---, and the user's; or the user's "
            f"alone; got {len(messages)} parts, {messages.count('')} of them empty"
        )
    templates = [Template(message) for message in messages]
    if not all(template.is_valid() for template in templates):
        raise ValueError(f"{path}: a lone $; write $$ for a dollar, $name for a placeholder")
    names = {name for template in templates for name in template.get_identifiers()}
    _refuse(str(path), "the file", names, set(placeholders))
    return Prompt(
        name=path.stem,
        placeholders=tuple(placeholders),
        parts=tuple(zip(ROLES[-len(templates) :], templates, strict=True)),
    )


def _refuse(prompt: str, where: str, given: set[str], expected: set[str]) -> None:
    if given != expected:
        raise ValueError(
            f"{prompt}: {where} lack the placeholders {sorted(expected - given)} and have the "
            f"unknown {sorted(given - expected)}; there must be {sorted(expected)}"
        )
