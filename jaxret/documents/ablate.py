"""Which fields of a profile help? Add-One and One-Out (Tool-REX, Section 2.4, Figure 3).

    original    no field                      full      all fields
    add/tags    this field and no other       out/tags  all but this one

The gain of a field is signed alike in both: ``add/x`` less ``original`` is what it brings to a bare
document, ``full`` less ``out/x`` what it brings to one that has the others.

Queries of one tool read one document, so their changes are not independent. `per_tool` sums them
tool by tool: the mean of what it returns is the mean over queries, and its standard error holds for
other tools, too. `sign_flips` and `holm` say which gains chance would not give.

Letters: N queries, I tools, C tools that some query needs.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from jaxret.data.dataset import Document
from jaxret.documents.read import is_empty, profile
from jaxret.validate import require

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
    found = tuple(f for f in fields if any(not is_empty(p.get(f)) for p in profiles))
    if not found:
        raise ValueError(f"no document has a tool_profile with one of {', '.join(fields)}")
    return found


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


def per_tool(values: Float[np.ndarray, " N"], tools: Int[np.ndarray, " N"]) -> np.ndarray:
    """One value a tool, [C]: their mean is that of the queries, and their standard error
    (sample deviation over sqrt(C)) that of queries which come in clusters.

    Args:
      values: of the queries, paired differences as a rule.
      tools: whose query it is; for several, the first that it needs.
    """
    values = np.asarray(values, np.float64)
    _, cluster = np.unique(tools, return_inverse=True)
    mean, count = values.mean(), cluster.max() + 1
    return mean + count / len(values) * np.bincount(cluster, values - mean)


def sign_flips(values: Float[np.ndarray, " C"], *, draws: int = 9_999, seed: int = 0) -> float:
    """Two-sided p of the mean, were each value as likely with the other sign.

    By drawing signs, the observed ones counted among them: at least 1 / (draws + 1).
    """
    require("draws", draws, ">= 1", lambda n: n >= 1)
    signs = np.random.default_rng(seed).integers(0, 2, (draws, len(values))) * 2.0 - 1.0
    seen, chance = abs(np.sum(values)), np.abs(signs @ values)
    slack = 1e-9 * np.abs(values).sum()  # sums of equal size in another order
    return float((1 + (chance >= seen - slack).sum()) / (1 + draws))


def holm(p: Sequence[float]) -> Float[np.ndarray, " m"]:
    """p-values of m tests, corrected for there being m (Holm 1979)."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")
    corrected = np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values))))
    found = np.empty_like(values)
    found[order] = np.minimum(corrected, 1.0)
    return found
