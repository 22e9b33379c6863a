"""Builds catalogues of tools from installed libraries: NumPy, pandas and AWS.

    bank = build_catalogue("numpy")
    write_json_lines(Path("bank/tools.jsonl"), [tool.row() for tool in bank.tools])

NumPy and pandas are inspected: public functions, classes and their members. An object is public if
a listed package has it, or names it in ``__all__``, without a leading underscore. Numbers, types of
array elements, exceptions and modules are not tools. An object with several names is one tool. A
member of a class that also belongs to a base class in the catalogue is a tool of the base class.

The tools of AWS are the operations in the service models of the package botocore, without network
access, under the names of boto3's methods: ``ec2.client.accept_address_transfer``.

Descriptions are the first paragraphs of the documentation, and tools keep their real names. In
ToolBank a language model condensed the descriptions, and the functions of NumPy and pandas were
renamed.
"""

import builtins
import importlib
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from experiments.build_catalogue import docstrings
from jaxret.generation.queries import shorten
from jaxret.runtime.validate import require

LIBRARIES = ("numpy", "pandas", "aws")
COUNTS = ("found", "aliases", "inherited", "undocumented", "tools")  # counts of a package
SERVICES = ("ec2", "rds", "iam", "s3", "sns")  # services of AWS in the paper


class Tool(NamedTuple):
    """A function, class, method, property or operation."""

    id: str  # path, as numpy.linalg.inv
    description: str
    parameters: dict[str, dict[str, Any]]  # by name: required, and type where known

    def row(self) -> dict[str, Any]:
        """Return a line of ``tools.jsonl`` (`jaxret.data.jsonl`)."""
        documentation = {"description": self.description, "parameters": self.parameters}
        return {"id": self.id, "name": self.id, "documentation": documentation}


class Catalogue(NamedTuple):
    """The tools of a library, ascending by id, and counts of its packages."""

    source: str  # name and version of the library
    tools: tuple[Tool, ...]
    counts: Mapping[str, Mapping[str, int]]  # by package or service, then `COUNTS`


class Library(NamedTuple):
    """The packages of a library that are read."""

    packages: tuple[str, ...]  # paths below the library; "" is the library itself
    members: tuple[str, ...] = ()  # packages whose classes' members are tools, too
    inherited: tuple[str, ...] = ()  # packages whose classes list inherited members, too


# Public in the words of NumPy's own page of modules, less what the paper leaves out: ctypeslib,
# dtypes (it writes dtype), emath, rec and version; and less typing and exceptions, without tools.
NUMPY = Library(packages=("", "fft", "lib", "linalg", "polynomial", "random", "strings", "testing"))
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


def build_catalogue(library: str, *, words: int = 80) -> Catalogue:
    """Build the catalogue of a library."""
    require("words", words, ">= 1", lambda x: x >= 1)
    require("library", library, f"one of {', '.join(LIBRARIES)}", lambda x: x in LIBRARIES)
    if library == "aws":
        return service_catalogue(SERVICES, words=words)
    return library_catalogue(library, PACKAGES[library], words=words)


def library_catalogue(name: str, library: Library, *, words: int) -> Catalogue:
    """Build the catalogue of an importable library."""
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


def service_catalogue(services: tuple[str, ...], *, words: int) -> Catalogue:
    """Build the catalogue of some services of AWS, by their names in botocore."""
    try:
        import botocore
        import botocore.session
    except ImportError as error:
        raise ImportError(
            "the catalogue of AWS needs botocore installed: install jaxret[generation]"
        ) from error
    loader = botocore.session.get_session().get_component("data_loader")
    known = loader.list_available_services("service-2")
    if unknown := sorted(set(services) - set(known)):
        raise ValueError(f"services: unknown {unknown}; known: {len(known)} such as {known[:5]}")
    tools, counts = [], {}
    for service in services:
        model = loader.load_service_model(service, "service-2")
        count = counts[service] = Counter(found=len(model["operations"]))
        for name, operation in sorted(model["operations"].items()):
            plain = docstrings.strip_html(operation.get("documentation", ""))
            if description := shorten(plain, words):
                method = f"{service}.client.{botocore.xform_name(name)}"
                parameters = _inputs(operation, model["shapes"])
                tools.append(Tool(id=method, description=description, parameters=parameters))
            count["undocumented" if not description else "tools"] += 1
    version = f"botocore {botocore.__version__}"
    return Catalogue(source=version, tools=tuple(tools), counts=counts)


def _public(name: str, library: Library) -> Iterator[tuple[str, str, Any]]:
    """Yield (package, path, object) of every object that may be a tool."""
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
    """Return each object once, under its own name in the highest package."""
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
    """Return public functions and properties of a class and its accessors (``Series.str``)."""
    names: dict[Any, tuple[str, Any]] = {}
    below: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated members warn
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
    """Return the listed package that a path belongs to."""
    inside = path.removeprefix(f"{name}.")
    of = [p for p in library.packages if p and inside.startswith(f"{p}.")]
    return max(of, key=len, default=name)


def _documentation(thing: Any) -> str:
    """Return the docstring of an object, unless a builtin type of Python has the same."""
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


def _inputs(operation: dict[str, Any], shapes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    given = operation.get("input")
    shape = shapes[given["shape"]] if given else {}
    required = shape.get("required", ())
    return {
        name: {"type": shapes[member["shape"]]["type"], "required": name in required}
        for name, member in shape.get("members", {}).items()
    }


_COMMON = {inspect.getdoc(thing) for thing in vars(builtins).values() if isinstance(thing, type)}
