"""Docstrings name every argument of functions with three or more, and the errors raised.

The test parses the source without importing it. A method may be documented only in a base class or
a Protocol, if it has the same name and arguments.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jaxret

FEW = 3  # fewer arguments need no description
# Names of the functions whose one purpose is to refuse (`jaxret.runtime.validate` and others).
REFUSING = re.compile(
    r"_?(require|refuse|check)(_\w+)?|from_registry|matrix_of|label_rows|(real|finite|whole)_numbers"
)


def public_functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """Yield top-level functions and methods of public classes, and whether each is a method."""

    def inside(node, method):
        for one in node.body:
            public = isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name[0] != "_"
            if public and isinstance(one, ast.ClassDef):
                yield from inside(one, True)
            elif public and not is_overload(one):
                yield one, method

    return inside(tree, False)


def is_overload(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(one).endswith("overload") for one in function.decorator_list)


def arguments(function: ast.FunctionDef) -> list[str]:
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    return [name for name in names if name not in ("self", "cls")]


def unnamed(function: ast.FunctionDef) -> list[str]:
    """Return the arguments missing under ``Args:``, for functions with three or more."""
    names = arguments(function)
    block = section(function, "Args")
    said = re.findall(r"^  \*{0,2}(\w+): *\S", block, re.MULTILINE)
    return [name for name in names if name not in said] if len(names) >= FEW else []


def raises_silently(function: ast.FunctionDef) -> bool:
    """Return whether a function raises an error that its docstring does not mention."""
    raises = any(map(refuses, ast.walk(function)))
    said = section(function, "Raises") or re.search(r"\b[Rr]aises? [A-Z]\w+", docstring(function))
    return raises and not said


def refuses(node: ast.AST) -> bool:
    """Return whether a node raises an error, or calls a function that refuses arguments."""
    if isinstance(node, ast.Call):
        return bool(REFUSING.fullmatch(ast.unparse(node.func).rpartition(".")[2]))
    return isinstance(node, ast.Raise) and node.exc is not None


def section(function: ast.FunctionDef, title: str) -> str:
    """Return the indented lines below a title."""
    found = re.search(rf"^{title}:\n((?:  .*\n|\n)+)", docstring(function) + "\n", re.MULTILINE)
    return found[1] if found else ""


def docstring(function: ast.FunctionDef) -> str:
    return ast.get_docstring(function) or ""


def problems(sources: dict[str, str]) -> list[str]:
    """Return the gaps of all docstrings, for the source of each module."""
    found = [
        (module, function, method)
        for module, text in sources.items()
        for function, method in public_functions(ast.parse(text))
    ]
    methods = [function for _, function, method in found if method]
    lacking = []
    for module, function, method in found:
        same = [one for one in methods if method and one.name == function.name]
        missing, silent = unnamed(function), raises_silently(function)
        where = f"{module}: {function.name}"
        if missing and not any(documents(one, function) for one in same):
            lacking.append(f"{where} does not name {', '.join(missing)}")
        if silent and not any(section(one, "Raises") for one in same):
            lacking.append(f"{where} does not tell what it raises")
    return lacking


def documents(base: ast.FunctionDef, own: ast.FunctionDef) -> bool:
    """Return whether a method's docstring is complete and covers another method's arguments."""
    complete = len(arguments(base)) >= FEW and not unnamed(base)
    return complete and set(arguments(own)) <= set(arguments(base))


BAD = '''
def bare(a, b, c): ...

def partly(a, b, *, c, **options):
    """Adds numbers.

    Args:
      a: a number.
      c: another.
    """

def stops(a):
    """Stops."""
    if a:
        raise ValueError(a)

def refuses(a):
    """Refuses."""
    require("a", a, "positive", lambda x: x > 0)

def told(a, b, *c):
    """Adds numbers.

    Args:
      a: a number.
      b: another.
      *c: more of them.

    Raises:
      ValueError: where there is none.
    """
    raise ValueError

def _private(a, b, c):
    raise ValueError

def few(a, b): ...

class Base:
    def push(self, a, b, c):
        """Pushes.

        Args:
          a: a number.
          b: another.
          c: a third.
        """

class Own:
    def push(self, a, b, c): ...
    def pull(self, a, b, c): ...

class Other:
    def push(self, a, b, d): ...
'''


def test_a_docstring_that_lacks_arguments_or_errors_is_noticed():
    assert problems({"bad": BAD}) == [
        "bad: bare does not name a, b, c",
        "bad: partly does not name b, options",
        "bad: stops does not tell what it raises",
        "bad: refuses does not tell what it raises",
        "bad: pull does not name a, b, c",
        "bad: push does not name a, b, d",
    ]


def test_docstrings_name_arguments_and_errors():
    root = Path(jaxret.__file__).parent
    sources = {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in sorted(root.rglob("*.py"))
    }
    assert len(sources) > 100
    assert problems(sources) == []
