"""Packages that import a module when a name of its is first asked for (PEP 562)."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the ``__getattr__`` and ``__dir__`` of a package.

        __getattr__, __dir__ = lazy(__name__, {"search": ("Retriever", "search_all"), "bm25": ()})

    Args:
      package: ``__name__`` of it.
      homes: each module below the package, with the public names that it holds; with none, the
        module itself is what is public. A name must not be that of a module: once imported, the
        module would stand in its place.
    """
    if clashes := {name for names in homes.values() for name in names} & homes.keys():
        raise ValueError(f"{package}: {sorted(clashes)} are modules and names: rename one of each")
    places = {name: module for module, names in homes.items() for name in names}

    def getattribute(name: str) -> Any:
        if name in places:
            return getattr(import_module(f"{package}.{places[name]}"), name)
        if name in homes:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listing() -> list[str]:
        return sorted([*places, *(module for module, names in homes.items() if not names)])

    return getattribute, listing
