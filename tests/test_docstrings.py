"""Functions that return an array document its shape under ``Returns:``."""

import importlib
import importlib.util
import inspect
import pkgutil
import typing

import jaxret

FRAMEWORKS = ("fastmcp", "langchain")


def is_array(annotation) -> bool:
    """Return whether an annotation is a jaxtyping array, or a tuple or option that has one."""
    if hasattr(annotation, "array_type") and hasattr(annotation, "dim_str"):
        return True
    arguments = () if isinstance(annotation, str) else typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is not None and origin.__module__ == "collections.abc":
        return False  # a function or an iterator of arrays
    return any(map(is_array, arguments))


def public_functions():
    """Yield the name, the function, and its docstrings, base classes included."""
    for found in pkgutil.walk_packages(jaxret.__path__, "jaxret."):
        parent, _, framework = found.name.rpartition(".")
        extra = parent == "jaxret.integrations" and framework in FRAMEWORKS
        if extra and importlib.util.find_spec(framework) is None:
            continue  # its extra is not installed
        module = importlib.import_module(found.name)
        for holder in (module, *filter(inspect.isclass, vars(module).values())):
            for name, value in vars(holder).items():
                own = inspect.isfunction(value) and value.__module__ == module.__name__
                if own and not name.startswith("_"):
                    bases = holder.__mro__ if inspect.isclass(holder) else [holder]
                    said = [inspect.getdoc(vars(one).get(name)) or "" for one in bases]
                    yield f"{module.__name__}.{value.__qualname__}", value, said


def silent(function, said: list[str]) -> bool:
    """Return whether a function returns an array whose shape no docstring states."""
    if not is_array(inspect.signature(function).return_annotation):
        return False
    return not any("[" in text.partition("\nReturns:\n")[2] for text in said)


def test_a_function_that_says_nothing_is_noticed():
    from jaxtyping import Float
    from numpy import ndarray

    def bare(x) -> Float[ndarray, " N"]: ...

    def pair(x) -> tuple[Float[ndarray, " N"], int]:
        """Two things.

        Returns:
          the values.
        """

    def told(x) -> Float[ndarray, " N"] | None:
        """One thing.

        Returns:
          the values [N].
        """

    def number(x) -> float: ...

    functions = (bare, pair, told, number)
    silences = [silent(f, [inspect.getdoc(f) or ""]) for f in functions]
    assert silences == [True, True, False, False]


def test_every_public_function_that_returns_an_array_says_its_shape():
    functions = list(public_functions())
    assert len(functions) > 200
    assert not sorted(name for name, function, said in functions if silent(function, said))
