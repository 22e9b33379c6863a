"""Learners from files outside the clone: ``learner=[greedy,my_learner.py:learner]``.

    import jaxret as jr                                       # my_learner.py

    def learner(tau=0.03, eta=0.003):
        return jr.rank_one("learner", ..., tau=tau, eta=eta)

The name after the colon is a learner, or a function that makes one. Settings of the function that
have a default are settings of the config: ``learners.learner.tau=[0.02,0.04]`` is a grid.
"""

import functools
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jaxret as jr

_PLAIN = (bool, int, float, str, type(None))


def block(reference: str) -> tuple[str, dict[str, Any]]:
    """Make the settings that stand for a learner of a file.

    Args:
      reference: ``PATH.py:NAME``, relative to the current folder or absolute.

    Returns:
      the name, and the block that a config has under ``learners.NAME``. It holds the hash of the
      file, so that the folder of a run depends on the content of the file.
    """
    path, _, name = reference.partition(".py:")
    path = path.removesuffix(".py") + ".py"
    if not name:
        raise ValueError(f"{path} needs the name of a learner in it, as in {path}:NAME")
    if not Path(path).is_file():
        raise ValueError(f"{path} does not exist: learner {reference!r} is to be read from it")
    file = {"path": path, "name": name, "sha256": _sha256(path)}
    parameters = inspect.signature(maker(file)).parameters.values()
    defaults = {one.name: one.default for one in parameters if isinstance(one.default, _PLAIN)}
    return name, defaults | {"file": file}


def maker(file: Mapping[str, str]) -> Callable[..., jr.Learner]:
    """Read the function that makes a learner of a file; the same one each time."""
    return _maker(file["path"], file["name"], file["sha256"])


@functools.cache
def _maker(path: str, name: str, sha256: str) -> Callable[..., jr.Learner]:
    if _sha256(path) != sha256:
        raise ValueError(f"{path} has changed since the command began: begin again")
    names = names_of(path)
    if name not in names:
        known = [key for key, value in names.items() if _is_learner(value)]
        raise ValueError(f"{path} has no {name!r}; it has {', '.join(known) or 'no learner'}")
    found = names[name]
    if not _is_learner(found):
        raise ValueError(
            f"{path}:{name} must be a learner or a function that makes one, "
            f"got {type(found).__name__}"
        )
    if isinstance(found, jr.Learner):
        return lambda: found

    @functools.wraps(found)
    def make(**settings: Any) -> jr.Learner:
        made = found(**settings)
        if not isinstance(made, jr.Learner):
            raise ValueError(f"{path}:{name} must return a learner, got {type(made).__name__}")
        return made

    return make


def names_of(path: str | Path) -> dict[str, Any]:
    """Run a file; return what it defines, by name."""
    module = f"learner_file_{_sha256(path)[:12]}"
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    sys.modules[module] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[module])
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {first_line(error)}") from error
    return vars(sys.modules[module])


def first_line(error: Exception) -> str:
    """Format an error as one line; of a failed assertion the message alone."""
    words = (str(error) or "no reason given").splitlines()[0]
    if isinstance(error, AssertionError) and str(error):
        return words
    return f"{type(error).__name__}: {words}"


def _is_learner(value: Any) -> bool:
    return isinstance(value, jr.Learner) or (callable(value) and not inspect.isclass(value))


def _sha256(path: str | Path) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
