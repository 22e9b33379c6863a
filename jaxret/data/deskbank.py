"""Loads DeskBank: 168 everyday tools in 14 domains, built in, made in the manner of ToolBank.

Written for jaxret and under its licence (see ``deskbank/README.md``); the manner is that of
'Efficient and Scalable Estimation of Tool Representations in Vector Space' (Tool2Vec,
ToolBank). Every tool has a full documentation, a deliberately bad one (``terse``) and the
``tool_profile`` of Tool-REX; the multi-tool queries come with their steps.
"""

import importlib.resources
from itertools import chain

from jaxret.data.dataset import Dataset, build
from jaxret.data.jsonl import read_queries, read_tools
from jaxret.runtime.validate import require_one_of

PARTS = {
    "single": ("queries.jsonl",),
    "multi": ("multi.jsonl",),
    "all": ("queries.jsonl", "multi.jsonl"),
}


def load(part: str = "single") -> Dataset:
    """Load the built-in data.

    Args:
      part: "single" (2,016 queries of one tool), "multi" (336 of 2 to 5 tools) or "all".

    Raises:
      ValueError: if ``part`` is unknown.
    """
    require_one_of("part", part, PARTS)
    with importlib.resources.as_file(importlib.resources.files("jaxret.data")) as data:
        folder = data / "deskbank"
        queries = chain.from_iterable(read_queries(folder / file) for file in PARTS[part])
        return build("deskbank", read_tools(folder / "tools.jsonl"), queries)
