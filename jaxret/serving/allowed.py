"""Sets of tools that a search may show, such as those that a user has permission for.

    index.search(query, allowed=["mail.send", "mail.read"])      or a mask over index.ids

The set is used like the availability of tools: the learner draws from its softmax over the set, and
learns from the feedback as if there were no other tools. A set is stored once, under a hash of its
rows, by which the log refers to it.

Letters: I rows of the state.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jaxret.runtime.validate import require_length

MOST = 1000  # sets that are kept; a set that was dropped is logged again


class NamedSet(NamedTuple):
    """Rows of tools, under a name."""

    name: str
    rows: Int[np.ndarray, " n"]

    def mask(self, items: int) -> Bool[np.ndarray, " I"]:
        """Return the mask of the set.

        Args:
          items: I.

        Returns:
          [I].
        """
        found = np.zeros(items, bool)
        found[self.rows] = True
        return found


class Sets:
    """The sets that were used lately, which the log has named."""

    def __init__(self):
        self.kept: dict[str, NamedSet] = {}  # the latest is the last

    def __contains__(self, some: NamedSet) -> bool:
        return some.name in self.kept

    def keep(self, some: NamedSet) -> NamedSet:
        """Mark a set as the latest; return the kept set of its name, or else this one."""
        self.kept[some.name] = found = self.kept.pop(some.name, some)
        while len(self.kept) > MOST:
            self.kept.pop(next(iter(self.kept)))
        return found


def named(rows: Sequence[int] | Int[np.ndarray, " n"]) -> NamedSet:
    """Name the set of some rows."""
    rows = np.unique(np.asarray(rows, np.int32))
    return NamedSet(hashlib.blake2b(rows.tobytes(), digest_size=8).hexdigest(), rows)


def rows_of(
    allowed: Any, known: dict[str, int], available: Bool[np.ndarray, " I"]
) -> Int[np.ndarray, " n"]:
    """Return the rows of an allowed set.

    Args:
      allowed: ids of tools, or a mask over the available tools in their order.
      known: row of each tool that was ever added.
      available: mask of the available tools [I].

    Returns:
      [n], with the rows of tools that were removed: these cannot be shown, which is not an error.

    Raises:
      ValueError: if an id was never added, a mask has another length, or no tool is left.
    """
    if isinstance(allowed, str):
        raise ValueError(f"allowed must be a list of ids or a mask, got the single {allowed!r}")
    given = np.asarray(allowed) if hasattr(allowed, "dtype") else list(allowed)
    if len(given) and isinstance(given[0], bool | np.bool_):
        rows = np.flatnonzero(available)
        require_length("the mask allowed", given, len(rows))
        rows = rows[np.asarray(given, bool)]
    else:
        try:
            rows = np.array([known[one] for one in given], np.int32)
        except (KeyError, TypeError):
            unknown = next(one for one in given if not isinstance(one, str) or one not in known)
            raise ValueError(f"allowed has no tool {unknown!r}: it was never added") from None
    if not available[rows].any():
        raise ValueError(f"allowed must have an available tool, got {len(given):,} without one")
    return rows
