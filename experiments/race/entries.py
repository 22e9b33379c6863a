"""Loads the learners of a file, presets and data sets, with errors of one sentence."""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jaxret as jr
from jaxret import data


class Refused(ValueError):
    """An error about wrong input, in one sentence."""


def learners_of(file: Path) -> list[jr.Learner]:
    """Reads the learners that ``learner()`` of a file returns, and checks each.

    Raises:
      Refused: if there is no such file or function, or a learner fails `check_learner`.
    """
    if not file.is_file():
        raise Refused(f"{file} does not exist")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise Refused(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        made = module.learner() if hasattr(module, "learner") else None
    except Exception as error:
        raise Refused(f"{file}: {first_line(error)}") from error
    if made is None:
        raise Refused(f"{file} has no function learner() that returns a learner")
    found = [made] if isinstance(made, jr.Learner) else made
    if not isinstance(found, list | tuple) or not all(isinstance(x, jr.Learner) for x in found):
        raise Refused(f"learner() of {file} must return a learner or a list of them, got {made!r}")
    if not found:
        raise Refused(f"learner() of {file} returns an empty list")
    for one in found:
        try:
            jr.check_learner(one)
        except Exception as error:
            raise Refused(f"{file}: {first_line(error)}") from error
    return list(found)


def first_line(error: Exception) -> str:
    """Formats an error as one line."""
    words = (str(error) or type(error).__name__).splitlines()[0]
    return words if isinstance(error, AssertionError) else f"{type(error).__name__}: {words}"


def opponents(names: Sequence[str], own: Sequence[jr.Learner]) -> list[jr.Learner]:
    """Returns the presets of these names, which must differ from each other and from ``own``.

    Raises:
      Refused: if a preset is unknown, or two learners have the same name.
    """
    known = jr.learners()
    if unknown := [name for name in names if name not in known]:
        raise Refused(f"no preset {unknown[0]!r}; there are {', '.join(known)}")
    mine = [one.name for one in own]
    if twice := [name for name in (*mine, *names) if [*mine, *names].count(name) > 1]:
        raise Refused(
            f"two learners are called {twice[0]!r}: rename yours, "
            f"{twice[0]}(...)._replace(name='my_{twice[0]}')"
        )
    return [getattr(jr, name)() for name in names]


def load(named: str, encoder: str) -> jr.Task:
    """Loads a data set from ``name`` or ``name=path``.

    Raises:
      Refused: if the data set cannot be loaded.
    """
    name, _, path = named.partition("=")
    try:
        if name in data.SOURCES or not path:
            return jr.load_task(name, path or None, encoder=encoder)
        return replace(jr.load_task("jsonl", path, encoder=encoder), name=name)
    except (ValueError, OSError) as error:
        raise Refused(str(error)) from error
