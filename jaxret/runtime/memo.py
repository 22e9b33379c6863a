"""Memoization of factories: equal settings give the same object.

jax compiles a program for each function object that it is given. A factory that returns the same
functions for the same settings therefore lets a second call share the programs of the first.
"""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_FACTORIES: set[Any] = set()  # all functions that `memoized` returned


def memoized(factory: Callable[P, T], *, kept: int = 256) -> Callable[P, T]:
    """Make a factory return the same object for equal settings.

    Settings that cannot be hashed (traced numbers, arrays, lists) are not memoized.

    Args:
      factory: a pure function of its settings.
      kept: size of the cache; the least recently used result is dropped first.
    """
    found: OrderedDict[Hashable, T] = OrderedDict()
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def made(*args: P.args, **settings: P.kwargs) -> T:
        try:
            bound = signature.bind(*args, **settings)
            bound.apply_defaults()
            key = tuple((name, _typed(value)) for name, value in bound.arguments.items())
            if key in found:
                found.move_to_end(key)
                return found[key]
        except TypeError:  # not hashable, or an invalid call, on which the factory raises
            return factory(*args, **settings)
        result = factory(*args, **settings)
        found[key] = result
        if len(found) > kept:
            found.popitem(last=False)
        return result

    _FACTORIES.add(made)
    return made


def factories(module: ModuleType) -> dict[str, Callable]:
    """List the memoized factories of a module that take settings alone: name -> function.

    Args:
      module: a module; factories with positional arguments wrap other parts, and are left out.
    """

    def takes_settings(one):
        kinds = {parameter.kind for parameter in inspect.signature(one).parameters.values()}
        return kinds <= {inspect.Parameter.KEYWORD_ONLY}

    own = {name: one for name, one in vars(module).items() if inspect.isfunction(one)}
    return {name: one for name, one in own.items() if one in _FACTORIES and takes_settings(one)}


def _typed(value: Any) -> Hashable:
    """Return a key that distinguishes 1, 1.0 and True."""
    if isinstance(value, dict):  # of a ``**settings`` parameter
        return tuple((name, _typed(one)) for name, one in sorted(value.items()))
    hash(value)
    return type(value), value
