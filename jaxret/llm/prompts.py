"""Loads prompts from text files with placeholders.

    write = load_prompt(Path(__file__).parent / "prompts" / "write.txt", ("tools", "examples"))
    messages = write.messages(tools=.., examples=..)

A placeholder is ``$name`` or ``${name}``, and ``$$`` is a dollar sign; braces have no meaning, so
that a prompt may contain JSON. A line of three dashes separates the system's message from the
user's; a file without one is the user's message.

The texts in this project are in our own words. `replace_prompts` puts others in their place, such
as those of a paper, from files with the same placeholders:

    prompts = replace_prompts({"write": write}, {"write": "mine.txt"})
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from jaxret.runtime.files import existing

ROLES = ("system", "user")


class Prompt(NamedTuple):
    """The messages of one question, with placeholders. Create it with `load_prompt`."""

    name: str
    placeholders: tuple[str, ...]  # all that have to be filled in
    parts: tuple[tuple[str, Template], ...]  # (role, text)
    optional: tuple[str, ...]  # those among the placeholders that the file may lack
    roles: tuple[str, ...]  # of a file with all messages
    sha256: str  # of the file

    def messages(self, **values: str) -> list[dict[str, str]]:
        """Fill in the placeholders.

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


def load_prompt(
    path: Path,
    placeholders: Sequence[str],
    *,
    optional: Sequence[str] = (),
    roles: Sequence[str] = ROLES,
) -> Prompt:
    """Read a prompt.

    Args:
      path: the text file.
      placeholders: the names of all placeholders that the file must have.
      optional: the names of placeholders that it may have besides.
      roles: the roles of the messages in the file, the first of which may be left out.

    Returns:
      the prompt, all of whose placeholders have to be filled in, also those that its file lacks.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a lone ``$``; too many or too few messages; an empty message; a missing or an
        unknown placeholder.
    """
    text = existing(path, "a prompt").read_text(encoding="utf-8")
    messages = [part.strip() for part in ("\n" + text).split("\n---\n")]
    if len(roles) - len(messages) not in (0, 1) or not all(messages):
        raise ValueError(
            f"{path}: expected the messages {', '.join(roles)}, with a line --- between two of "
            f"them, the first of which may be left out; got {len(messages)} parts, "
            f"{messages.count('')} of them empty"
        )
    templates = [Template(message) for message in messages]
    if not all(template.is_valid() for template in templates):
        raise ValueError(f"{path}: a lone $; write $$ for a dollar, $name for a placeholder")
    names = {name for template in templates for name in template.get_identifiers()}
    _refuse(str(path), "the file", names, set(placeholders), set(optional))
    return Prompt(
        name=path.stem,
        placeholders=(*placeholders, *optional),
        parts=tuple(zip(roles[-len(templates) :], templates, strict=True)),
        optional=tuple(optional),
        roles=tuple(roles),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def replace_prompts(
    prompts: Mapping[str, Prompt], files: Mapping[str, str | Path | None]
) -> dict[str, Prompt]:
    """Replace prompts by files with the same placeholders.

    Args:
      prompts: prompts by name.
      files: paths by name; None, or no path, keeps the prompt.

    Returns:
      the prompts by name, in their order.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a path for an unknown name, or a file that `load_prompt` refuses.
    """
    if unknown := sorted(files.keys() - prompts.keys()):
        raise ValueError(f"prompts: unknown {unknown[0]!r}; known: {', '.join(prompts)}")
    return {
        name: prompt if files.get(name) is None else _read_like(prompt, Path(str(files[name])))
        for name, prompt in prompts.items()
    }


def _read_like(prompt: Prompt, path: Path) -> Prompt:
    needed = [name for name in prompt.placeholders if name not in prompt.optional]
    return load_prompt(path, needed, optional=prompt.optional, roles=prompt.roles)


def _refuse(
    prompt: str,
    where: str,
    given: set[str],
    expected: set[str],
    optional: frozenset[str] | set[str] = frozenset(),
) -> None:
    missing, unknown = expected - given, given - expected - optional
    if missing or unknown:
        others = f", and there may be {sorted(optional)}" if optional else ""
        raise ValueError(
            f"{prompt}: {where} lack the placeholders {sorted(missing)} and have the unknown "
            f"{sorted(unknown)}; there must be {sorted(expected)}{others}"
        )
