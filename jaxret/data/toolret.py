"""ToolRet: 35 retrieval tasks over one pool of some 43,000 tools.

From the Hugging Face hub, ``mangopy/ToolRet-Queries`` and ``mangopy/ToolRet-Tools`` (Shi et
al. 2025, 'Retrieval Models Aren't Tool-Savvy'; collected from sources with licences of their
own). Tool-REX publishes its expanded documents in the same schema.

    queries/<task>/*     id, query, instruction, labels: JSON of [{id, relevance, ...}]
    tools/<part>/*       id, documentation

as ``.jsonl`` or ``.parquet``; the folders ``queries`` and ``tools`` are the two repositories
as they come.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxret.data.dataset import Dataset, Query, build
from jaxret.data.files import existing, json_lines, parquet_rows
from jaxret.data.text import query_text

REPOSITORIES = {"queries": "mangopy/ToolRet-Queries", "tools": "mangopy/ToolRet-Tools"}


def load(path: str | Path | None = None, *, tasks: Sequence[str] | None = None) -> Dataset:
    """Loads the queries of some tasks and, always, all tools.

    The text of a query is ``{instruction}\\n{query}`` (ORAG C.1.2); its split is its task.
    Documents stay the strings that they are; the recipes read the fields inside.

    Args:
      path: a folder with ``queries/`` and ``tools/``; without it, the hub.
      tasks: names of tasks; all without it.

    Raises:
      ValueError: also for tasks that are not there, by name.
      ImportError: parquet files and no pyarrow.
      OSError: no path was given and the hub is not to be reached.
    """
    if path is None:
        folders = {part: _download(part) for part in REPOSITORIES}
    else:
        root = existing(path, "a folder with queries/<task>/ and tools/<part>/")
        folders = {part: existing(root / part, REPOSITORIES[part]) for part in REPOSITORIES}
    known = _subfolders(folders["queries"])
    chosen = list(known) if tasks is None else list(dict.fromkeys(tasks))
    if unknown := [task for task in chosen if task not in known]:
        raise ValueError(f"unknown tasks {unknown}; known: {', '.join(known)}")
    tools = (
        (row["id"], row["documentation"])
        for folder in _subfolders(folders["tools"]).values()
        for row in _rows(folder, fields=("id", "documentation"))
    )
    queries = (query for task in chosen for query in _queries(known[task]))
    return build("toolret", tools, queries)


def _queries(folder: Path) -> Iterator[Query]:
    for row in _rows(folder, fields=("id", "query", "instruction", "labels")):
        try:
            labels = tuple(label["id"] for label in json.loads(row["labels"]) if _relevant(label))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder}: labels of query {row['id']!r} must be the JSON text of a list of "
                f"objects with an id, got {row['labels']!r:.80}"
            ) from error
        text = query_text(row["instruction"], row["query"])
        yield Query(id=row["id"], text=text, labels=labels, split=folder.name)


def _relevant(label: dict[str, Any]) -> bool:
    return label.get("relevance", 1) > 0


def _subfolders(folder: Path) -> dict[str, Path]:
    found = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    return {path.name: path for path in found}


def _rows(folder: Path, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    files = sorted(file for file in folder.iterdir() if file.suffix in (".jsonl", ".parquet"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no .jsonl or .parquet file")
    for file in files:
        if file.suffix == ".jsonl":
            yield from json_lines(file, holds="one row a line", fields=fields)
        else:
            yield from parquet_rows(file, fields=fields)


def _download(part: str) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(REPOSITORIES[part], repo_type="dataset"))
    except OSError as error:
        copies = " and ".join(f"{name} into DIR/{part}" for part, name in REPOSITORIES.items())
        raise OSError(
            f"could not get {REPOSITORIES[part]} from the Hugging Face hub; where there is a "
            f"network, copy the data sets {copies} "
            f"(`hf download NAME --repo-type dataset --local-dir ...`) and give path=DIR"
        ) from error
