"""Which fields of a profile help? Add-One and One-Out (Tool-REX, Section 2.4, Figure 3).

    original    no field                      full      all fields
    add/tags    this field and no other       out/tags  all but this one

The gain of a field has the same sign in both: ``add/x`` less ``original`` is what it brings to a
bare document, ``full`` less ``out/x`` what it brings to one that has the others.

Which gains chance would not give, `jaxret.evaluation.statistics` says: queries of one tool read one
document, so their changes are not independent.
"""

from collections.abc import Sequence

from jaxret.data.dataset import Document
from jaxret.documents.reading import is_empty, profile

# In the paper's order of Section 2.4; there they are called function_description and limitations.
FIELDS = ("function", "when_to_use", "limitation", "tags", "example_usage")


def present(documents: Sequence[Document], fields: Sequence[str] = FIELDS) -> tuple[str, ...]:
    """Those of the fields that the profile of some document has, not empty.

    Raises:
      ValueError: an unknown field, or no profile that has one of them.
    """
    if unknown := [field for field in fields if field not in FIELDS]:
        raise ValueError(f"fields: unknown {unknown}; known: {', '.join(FIELDS)}")
    profiles = [profile(document) for document in documents]
    there = tuple(f for f in fields if any(not is_empty(p.get(f)) for p in profiles))
    if not there:
        raise ValueError(f"no document has a tool_profile with one of {', '.join(fields)}")
    return there


def variants(fields: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Name -> the fields of the profile that a document then has; see the head of this file."""
    every = tuple(fields)
    return (
        {"original": (), "full": every}
        | {f"add/{field}": (field,) for field in every}
        | {f"out/{field}": tuple(f for f in every if f != field) for field in every}
    )


def gains(fields: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name of a gain -> (variant, variant that is taken off), for all that are compared."""
    return (
        {"full": ("full", "original")}
        | {f"add/{field}": (f"add/{field}", "original") for field in fields}
        | {f"out/{field}": ("full", f"out/{field}") for field in fields}
    )
