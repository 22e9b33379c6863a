"""Loads data sets by name; each source is one file of this package."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from jaxret.data import (
    beir,
    bfcl,
    deskbank,
    etom,
    jsonl,
    toolbank,
    toolbench,
    toolret,
    tools,
    ultratool,
)
from jaxret.data.dataset import Dataset, Document, Query, Step, build, select, split_by_group
from jaxret.data.hops import as_hops
from jaxret.data.split import Split, overlap, own_split
from jaxret.data.templates import TEMPLATES, normalise, query_text, template, with_profile

__all__ = [
    "NEEDED",
    "SOURCES",
    "TEMPLATES",
    "Dataset",
    "Document",
    "Query",
    "Split",
    "Step",
    "as_hops",
    "build",
    "load",
    "normalise",
    "overlap",
    "own_split",
    "query_text",
    "select",
    "split_by_group",
    "template",
    "with_profile",
]

SOURCES: dict[str, Callable[..., Dataset]] = {
    "deskbank": deskbank.load,
    "ultratool": ultratool.load,
    "toollens": partial(beir.load, name="toollens"),
    "bfcl": bfcl.load,
    "toolbench": toolbench.load,
    "toolbank": toolbank.load,
    "toolret": toolret.load,
    "etom": etom.load,
    "beir": beir.load,
    "jsonl": jsonl.load,
    "tools": tools.load,
}
FIXED = ("path", "name")  # arguments of `load`, not options
READ_GENERAL = ("jsonl", "etom", "tools")  # sources whose own loaders read the general layout
NEEDED = {
    "ultratool": "test.json of github.com/JoeYing1019/UltraTool (data/English-dataset)",
    "toollens": "the folder datasets/ToolLens of github.com/quchangle1/COLT",
    "bfcl": "the folder berkeley-function-call-leaderboard/bfcl_eval/data of "
    "github.com/ShishirPatil/gorilla",
    "toolbench": "a folder G1, G2 or G3 of the retrieval data of github.com/OpenBMB/ToolBench",
    "toolbank": "a folder with the queries of the hub's squeeze-ai-lab/ToolBank and the tool files "
    "of github.com/SqueezeAILab/Tool2Vec (see jaxret.data.toolbank)",
    "etom": "the folder data of github.com/snooow1029/ETOM",
    "beir": "a folder with corpus.jsonl, queries.jsonl and qrels/*.tsv, unpacked from "
    "github.com/beir-cellar/beir",
    "jsonl": "a folder of your own with tools.jsonl and queries.jsonl (see jaxret.data.jsonl)",
    "tools": "a file of your own tools: MCP's tools/list, OpenAPI, a table (see jaxret.data.tools)",
}


def load(name: str, path: str | Path | None = None, **options) -> Dataset:
    """Load a data set.

    A benchmark that was converted to the general layout (a folder with ``tools.jsonl`` and
    ``queries.jsonl``) is read from it, under its own name.

    Args:
      name: deskbank (built in), ultratool, toollens, bfcl, toolbench, toolbank, toolret (from
        the hub without a path), etom, beir, jsonl or tools.
      path: the file or folder of the source.
      **options: arguments of the source's own ``load``, such as ``part``, ``bank`` or ``tasks``.

    Raises:
      ValueError: the name or an option is unknown, a path is missing, or deskbank was given one.
      FileNotFoundError: the path does not exist.
    """
    if name not in SOURCES:
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(SOURCES)}")
    if path is None:
        if name in NEEDED:
            raise ValueError(f"data set {name!r} needs path=: {NEEDED[name]}")
        return SOURCES[name](**_known(name, SOURCES[name], options))
    if name == "deskbank":
        raise ValueError(f"data set 'deskbank' is built in and takes no path, got {path}")
    if (Path(path) / "tools.jsonl").is_file() and name not in READ_GENERAL:
        return jsonl.load(path, name=name, **_known(name, jsonl.load, options))
    return SOURCES[name](path, **_known(name, SOURCES[name], options))


def _known(name: str, source: Callable[..., Dataset], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, or raise ValueError for one that the source does not have."""
    has = [option for option in inspect.signature(source).parameters if option not in FIXED]
    if unknown := [option for option in options if option not in has]:
        offered = f"it has {', '.join(has)}" if has else "it has none"
        raise ValueError(f"data set {name!r} has no option {unknown[0]!r}; {offered}")
    return options
