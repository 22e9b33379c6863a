"""What a Python library offers: its public functions, classes and their members.

Public is what a listed package has or names in ``__all__`` without a leading underscore. Numbers,
types of array elements, exceptions and modules are no tools. One object under several names is one
tool; a class's member that a base class in the catalogue has too is the base's.
"""

import builtins
import importlib
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from jaxret.generation import docstrings
from jaxret.generation.catalogue import Catalogue, Tool


class Library(NamedTuple):
    """Which packages of a library are read."""

    packages: tuple[str, ...]  # below the library; "" is the library itself
    members: tuple[str, ...] = ()  # packages whose classes' members are tools too
    inherited: tuple[str, ...] = ()  # of those, the ones that list what a class inherits


# Public in the words of NumPy's own page of modules, less what the paper leaves out: ctypeslib,
# dtypes (it writes dtype), emath, rec and version; and less typing and exceptions, without tools.
NUMPY = Library(
    packages=("", "fft", "lib", "linalg", "polynomial", "random", "strings", "testing"),
)
# The packages of pandas's reference, less core, compat and util (paper) and errors, which has no
# tools. Its classes of groups and windows (api.typing) are documented under core. The reference
# lists for an index what it adds to `Index`, for an offset everything.
PANDAS = Library(
    packages=(
        "",
        *("api.extensions", "api.indexers", "api.interchange", "api.types", "arrays"),
        *("io.json", "plotting", "testing", "tseries.offsets"),
    ),
    members=("", "tseries.offsets"),
    inherited=("tseries.offsets",),
)
PACKAGES = {"numpy": NUMPY, "pandas": PANDAS}


def catalogue(name: str, library: Library, *, words: int) -> Catalogue:
    """The catalogue of an importable library.

    Args:
      name: of the library.
      library: what of it is read.
      words: of a description, at most.

    Raises:
      ImportError: the library is not installed.
    """
    counts: dict[str, Counter[str]] = {}
    objects = _merged(_public(name, library), counts)
    classes = {path: thing for path, thing in objects.items() if isinstance(thing, type)}
    for path, owner in classes.items():
        package = path.removeprefix(name).rsplit(".", 1)[0].removeprefix(".")
        if package in library.members:
            whole = package in library.inherited
            bases = () if whole else tuple(set(owner.__mro__[1:]) & set(classes.values()))
            objects |= _members(path, owner, bases, counts[_package(path, name, library)])
    tools = []
    for path, thing in sorted(objects.items()):
        package = counts[_package(path, name, library)]
        docstring = _documentation(thing)
        if description := docstrings.condense(docstring, words=words):
            tools.append(
                Tool(id=path, description=description, parameters=_parameters(thing, docstring))
            )
        else:
            package["undocumented"] += 1
        package["tools"] += bool(description)
    version = getattr(importlib.import_module(name), "__version__", "?")
    return Catalogue(source=f"{name} {version}", tools=tuple(tools), counts=counts)


def _public(name: str, library: Library) -> Iterator[tuple[str, str, Any]]:
    """(package, path, object) of everything that may be a tool."""
    for package in library.packages:
        module = _import(name, f"{name}.{package}" if package else name)
        for attribute in sorted({*getattr(module, "__all__", ()), *dir(module)}):
            thing = getattr(module, attribute, None)
            if not attribute.startswith("_") and _is_tool(thing, name):
                yield package or name, f"{module.__name__}.{attribute}", thing


def _import(library: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != library:
            raise
        missing = "installed" if error.name == library else f"with a module {module}"
        raise ImportError(
            f"the catalogue of {library} needs {library} {missing}: install jaxret[generation]"
        ) from error


def _is_tool(thing: Any, library: str) -> bool:
    if isinstance(thing, ModuleType) or not callable(thing):
        return False
    if type(thing).__name__ == "PytestTester":  # numpy.test runs NumPy's own tests
        return False
    if isinstance(thing, type) and issubclass(thing, BaseException | np.generic):
        return False
    origin = getattr(thing, "__module__", None)
    return not isinstance(origin, str) or origin.split(".")[0] == library


def _merged(
    candidates: Iterable[tuple[str, str, Any]], counts: dict[str, Counter[str]]
) -> dict[str, Any]:
    """Path to object, each object once: by its own name, in the highest package."""
    names: dict[int, list[tuple[str, str, Any]]] = {}
    for package, path, thing in candidates:
        counts.setdefault(package, Counter())["found"] += 1
        names.setdefault(id(thing), []).append((package, path, thing))
    merged = {}
    for same in names.values():
        kept = min(same, key=lambda one: _preference(one[1], one[2]))
        merged[kept[1]] = kept[2]
        for package, path, _ in same:
            counts[package]["aliases"] += path != kept[1]
    return merged


def _preference(path: str, thing: Any) -> tuple[bool, int, str]:
    own = getattr(thing, "__name__", "")
    return path.rsplit(".", 1)[-1] != own, path.count("."), path


def _members(
    path: str, owner: type, bases: tuple[type, ...], count: Counter[str], *, accessors: bool = True
) -> dict[str, Any]:
    """Public functions and properties of a class, and those of its accessors (``Series.str``)."""
    names: dict[Any, tuple[str, Any]] = {}
    below: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is about to go
        for name in dir(owner):
            if name.startswith("_"):
                continue
            raw, thing = inspect.getattr_static(owner, name), getattr(owner, name, None)
            where, above = f"{path}.{name}", any(hasattr(base, name) for base in bases)
            if isinstance(thing, type):
                if accessors and not above and not isinstance(raw, type):
                    below |= _members(where, thing, (), count, accessors=False)
                continue
            if not (callable(thing) or inspect.isdatadescriptor(raw)):
                continue
            count["found"] += 1
            if above:
                count["inherited"] += 1
                continue
            one = getattr(raw, "__func__", raw)
            same = names.setdefault(id(one), (where, thing))
            if same[0] != where:
                count["aliases"] += 1
                names[id(one)] = min(same, (where, thing), key=lambda x: _preference(*x))
    return dict(names.values()) | below


def _package(path: str, name: str, library: Library) -> str:
    """The listed package that a path belongs to."""
    inside = path.removeprefix(f"{name}.")
    of = [p for p in library.packages if p and inside.startswith(f"{p}.")]
    return max(of, key=len, default=name)


def _documentation(thing: Any) -> str:
    """Its own docstring; not what every object, number or function of Python has."""
    own = inspect.getdoc(thing) or ""
    return "" if own in _COMMON else own


def _parameters(thing: Any, docstring: str) -> dict[str, dict[str, bool]]:
    try:
        signature = inspect.signature(thing)
    except (ValueError, TypeError):
        return {n: {"required": r} for n, r in docstrings.parameters(docstring).items()}
    named = [
        p for p in signature.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    return {
        parameter.name: {"required": parameter.default is parameter.empty}
        for parameter in named
        if parameter.name not in ("self", "cls")
    }


_COMMON = {inspect.getdoc(thing) for thing in vars(builtins).values() if isinstance(thing, type)}
