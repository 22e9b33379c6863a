"""Which tools are asked for, and which together (the statistics of C.4, and more)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np


def summary(labels: Sequence[Sequence[str]], tools: Sequence[str]) -> dict[str, float]:
    """Figures of a set of queries.

    Args:
      labels: of N queries, ids of tools.
      tools: ids of the I tools of the catalogue.

    Returns:
      ``queries``; ``functions`` a query, mean; ``combinations``, different sets of tools (the
      paper: 19,530 of about 20,000 for NumPy); ``pairs``, different pairs; ``covered``, the share
      of tools with a query; ``evenness``, the entropy of tool use over its maximum, log I.
    """
    used = Counter(tool for tools_of_query in labels for tool in tools_of_query)
    shares = np.array(list(used.values()), np.float64) / max(used.total(), 1)
    return {
        "queries": len(labels),
        "functions": used.total() / max(len(labels), 1),
        "combinations": len({frozenset(tools_of_query) for tools_of_query in labels}),
        "pairs": len(_pairs(labels)),
        "covered": len(used) / len(tools),
        "evenness": float(-(shares * np.log(shares)).sum() / np.log(max(len(tools), 2))),
    }


def pairs(labels: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Every pair of tools that a query needs together, the most frequent first.

    Returns:
      ``tools``, ``queries`` and ``lift``: how many times more often than if the tools of a query
      were independent, ``N n_ab / (n_a n_b)``.
    """
    used = Counter(tool for needed in labels for tool in set(needed))
    return [
        {"tools": [a, b], "queries": n, "lift": len(labels) * n / (used[a] * used[b])}
        for (a, b), n in sorted(_pairs(labels).items(), key=lambda item: (-item[1], item[0]))
    ]


def _pairs(labels: Iterable[Sequence[str]]) -> Counter[tuple[str, str]]:
    return Counter(pair for needed in labels for pair in combinations(sorted(set(needed)), 2))
