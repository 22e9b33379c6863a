"""Loads ToolRet: 35 retrieval tasks over one pool of some 43,000 tools.

From the Hugging Face hub, ``mangopy/ToolRet-Queries`` and ``mangopy/ToolRet-Tools`` (Shi et al.
2025, 'Retrieval Models Aren't Tool-Savvy'; collected from sources with licences of their own).
Tool-REX has expanded documents in this schema: a ``tool_profile`` inside the documentation.

    queries/<task>/*        id, query, instruction, labels: JSON of [{id, relevance, ...}]; category
    tools/<category>/*      id, documentation

as ``.jsonl`` or ``.parquet``; the folders ``queries`` and ``tools`` are the two repositories.
`load` returns an ordinary data set, `benchmark` the inputs of the authors' protocol.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxret.data.dataset import Dataset, Empty, Query, Unknown, build
from jaxret.data.templates import query_text
from jaxret.runtime.files import existing, json_lines, parquet_rows
from jaxret.runtime.rows import id_of, query_of

REPOSITORIES = {"queries": "mangopy/ToolRet-Queries", "tools": "mangopy/ToolRet-Tools"}

#: Categories in the code of ToolRet and Tool-REX; Tool-REX's Appendix A.1 differs for some tasks.
CATEGORIES = {
    "web": (
        *("apibank", "apigen", "autotools-food", "autotools-music", "autotools-weather", "mnms"),
        *("restgpt-spotify", "restgpt-tmdb", "reversechain", "rotbench", "t-eval-dialog"),
        *("t-eval-step", "taskbench-daily", "toolace", "toolbench", "toolemu", "tooleyes"),
        *("toollens", "ultratool"),
    ),
    "code": (
        *("craft-math-algebra", "craft-tabmwp", "craft-vqa", "gorilla-huggingface"),
        *("gorilla-pytorch", "gorilla-tensor", "toolink"),
    ),
    "customized": (
        *("appbench", "gpt4tools", "gta", "metatool", "taskbench-huggingface"),
        *("taskbench-multimedia", "tool-be-honest", "toolalpaca", "toolbench-sam"),
    ),
}


class Benchmark(NamedTuple):
    """All queries unmerged, for the authors' protocol; N queries, I tools."""

    dataset: Dataset  # nothing is merged; ``split`` names the task
    ids: tuple[str, ...]  # N, the ids of the source, distinct within a task
    queries: tuple[str, ...]  # N, without instruction
    instructions: tuple[str, ...]  # N, empty if there is none
    tasks: dict[str, str]  # category of each task
    pools: tuple[str, ...]  # I, the folder of ``tools`` that each is from


def load(
    path: str | Path | None = None,
    *,
    tasks: Sequence[str] | None = None,
    unknown: Unknown = "refuse",
    empty: Empty = "keep",
) -> Dataset:
    """Load the queries of some tasks and all tools.

    The text of a query is ``{instruction}\\n{query}`` (ORAG C.1.2); its split is its task.
    Documents remain strings, whose fields the templates parse.

    Args:
      path: a folder with ``queries/`` and ``tools/``; None: the hub.
      tasks: names of tasks; None: all tasks.
      unknown: "refuse" labels that name an unknown tool, or "drop" them.
      empty: "keep" documents without text, with a warning, "drop" or "refuse" them.

    Raises:
      ValueError: if a file is damaged, or a task is unknown.
      ImportError: if the files are parquet and pyarrow is not installed.
      OSError: if no path was given and the hub cannot be reached.
    """
    queries, tools = _folders(path, tasks)
    kept = (
        Query(
            id=row["id"],
            text=query_text(row["instruction"], row["query"]),
            labels=_labels(folder, row),
            split=task,
        )
        for task, folder in queries.items()
        for row in _query_rows(folder)
    )
    documents = ((tool, text) for _, tool, text in _tools(tools))
    return build("toolret", documents, kept, unknown=unknown, empty=empty)


def benchmark(path: str | Path | None = None, *, tasks: Sequence[str] | None = None) -> Benchmark:
    """Load the queries and tools of the authors' protocol.

    Repeated queries are kept; in ``dataset`` the ids of queries begin with their task.

    Raises:
      ValueError: if a file is damaged, a task has an unknown category, or a label has a relevance
        other than 0 or 1, the gains of `jaxret.evaluation.metrics`.
      ImportError: if the files are parquet and pyarrow is not installed.
      OSError: if no path was given and the hub cannot be reached.
    """
    queries, tools = _folders(path, tasks)
    pools: dict[str, str] = {}
    documents = []
    for category, tool, text in _tools(tools):
        pools.setdefault(tool, category)
        documents.append((tool, text))
    rows = {task: list(_query_rows(folder)) for task, folder in queries.items()}
    kept = [
        Query(
            id=f"{task}/{row['id']}",
            text=query_text(row["instruction"], row["query"]),
            labels=_labels(queries[task], row, binary=True),
            group=(task, row["id"]),
            split=task,
        )
        for task, of_task in rows.items()
        for row in of_task
    ]
    every = [row for of_task in rows.values() for row in of_task]
    return Benchmark(
        dataset=build("toolret", documents, kept),
        ids=tuple(row["id"] for row in every),
        queries=tuple(row["query"] for row in every),
        instructions=tuple(row["instruction"] or "" for row in every),
        tasks={task: _category(task, of_task) for task, of_task in rows.items()},
        pools=tuple(pools.values()),
    )


def _folders(path, tasks) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the folders of the chosen tasks and of all tool categories, by name."""
    if path is None:
        folders = {part: _download(part) for part in REPOSITORIES}
    else:
        root = existing(path, "a folder with queries/<task>/ and tools/<category>/")
        folders = {part: existing(root / part, REPOSITORIES[part]) for part in REPOSITORIES}
    known = _subfolders(folders["queries"])
    chosen = list(known) if tasks is None else list(dict.fromkeys(tasks))
    if unknown := [task for task in chosen if task not in known]:
        raise ValueError(f"unknown tasks {unknown}; known: {', '.join(known)}")
    return {task: known[task] for task in chosen}, _subfolders(folders["tools"])


def _tools(folders: dict[str, Path]) -> Iterator[tuple[str, str, str]]:
    """Yield (category, id, documentation)."""
    for category, folder in folders.items():
        for row in _rows(folder, fields=("id", "documentation")):
            yield category, id_of(str(folder), row["id"]), row["documentation"] or ""


def _query_rows(folder: Path) -> Iterator[dict[str, Any]]:
    fields = ("id", "query", "instruction", "labels")
    for row in _rows(folder, fields, optional=("category",)):
        name = id_of(str(folder), row["id"])
        yield row | {"id": name, "query": query_of(str(folder), name, row["query"])}


def _labels(folder: Path, row: dict[str, Any], *, binary: bool = False) -> tuple[str, ...]:
    """Return the relevant tools; the last relevance of a repeated tool counts."""
    try:
        listed = json.loads(row["labels"])
        relevance = {id_of(str(folder), x["id"]): int(x.get("relevance", 1)) for x in listed}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder}: labels of query {row['id']!r} must be the JSON text of a list of "
            f"objects with an id, got {row['labels']!r:.80}"
        ) from error
    if binary and (graded := {tool: x for tool, x in relevance.items() if x not in (0, 1)}):
        raise ValueError(
            f"{folder}: query {row['id']!r} has labels of relevance {graded}; nDCG is computed "
            "with gains of 0 or 1 here"
        )
    return tuple(tool for tool, x in relevance.items() if x > 0)


def _category(task: str, rows: list[dict[str, Any]]) -> str:
    """Return the category by the table, or by the rows for tasks outside ToolRet."""
    listed = {name: category for category, names in CATEGORIES.items() for name in names}
    own = {row.get("category") for row in rows}
    category = listed.get(task) or (own.pop() if len(own) == 1 else own)
    if not isinstance(category, str) or category not in CATEGORIES:
        raise ValueError(
            f"task {task!r} is none of ToolRet's {len(listed)}: its rows must have one category of "
            f"{', '.join(CATEGORIES)}, got {category!r}"
        )
    return category


def _subfolders(folder: Path) -> dict[str, Path]:
    folders = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    return {path.name: path for path in folders}


def _rows(
    folder: Path, fields: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Iterator[dict[str, Any]]:
    files = sorted(file for file in folder.iterdir() if file.suffix in (".jsonl", ".parquet"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no .jsonl or .parquet file")
    for file in files:
        if file.suffix == ".jsonl":
            yield from json_lines(file, holds="one row a line", fields=fields)
        else:
            yield from parquet_rows(file, fields=fields, optional=optional)


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
