"""Writes data sets of other layouts in ToolRet's layout, for `experiments.evaluate_toolret`.

    uv run python -m experiments.arrange_toolret path=/tmp/toolret data=FOLDER
    uv run python -m experiments.arrange_toolret path=/tmp/toolrex data=FOLDER expanded=true

This tests the protocol without access to the hub. The numbers are not comparable to ToolRet's: the
data are the sources of a few of its tasks, with their own choice of queries and documents. Ids are
row numbers (``apibank_tool_17``), as on the hub.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from experiments.common.config import plain
from experiments.common.experiment import command
from jaxret import data
from jaxret.data.dataset import Dataset, Document, select
from jaxret.data.toolret import CATEGORIES
from jaxret.runtime.validate import require

BESIDE = ("terse", "domain")  # our fields, not part of the documentation


@command("arrange_toolret")
def main(cfg: DictConfig) -> dict[str, float]:
    """Write the folder; return the number of tools and queries of each task."""
    root, tasks = Path(cfg.path), plain(cfg.tasks)
    if root.exists():
        raise ValueError(f"path {root} exists: give the name of a new folder, or delete it")
    for task, settings in tasks.items():
        allowed = f"one of {', '.join(CATEGORIES)}"
        name = f"tasks.{task}.category"
        require(name, settings["category"], allowed, lambda x: x in CATEGORIES)
    sources = {task: chosen(settings) for task, settings in tasks.items()}
    counts = {}
    for task, dataset in sources.items():
        category = tasks[task]["category"]
        tools = list(tool_rows(task, dataset, expanded=cfg.expanded))
        append(root / "tools" / category / "tools.jsonl", tools)
        queries = list(query_rows(task, dataset, tools, tasks[task]))
        append(root / "queries" / task / "queries.jsonl", queries)
        print(f"{task} ({category}): {len(tools):,} tools, {len(queries):,} queries")
        counts |= {f"{task}/tools": float(len(tools)), f"{task}/queries": float(len(queries))}
    return counts


def chosen(settings: dict[str, Any]) -> Dataset:
    """Load a source, with the queries of its split."""
    source, split = settings["source"], settings.get("split")
    dataset = data.load(source["name"], source.get("path"), **source.get("options", {}))
    if split is None:
        return dataset
    rows = np.flatnonzero([part == split for part in dataset.split or ()])
    if not len(rows):
        raise ValueError(f"{dataset.name} has no queries of split {split!r}")
    return select(dataset, rows)


def tool_rows(task: str, dataset: Dataset, *, expanded: bool) -> Iterator[dict[str, str]]:
    """Yield rows of ``tools``, with documents as JSON, or unchanged if they are texts."""
    leave_out = BESIDE if expanded else (*BESIDE, "tool_profile")
    for row, document in enumerate(dataset.documents):
        yield {"id": f"{task}_tool_{row}", "documentation": documentation(document, leave_out)}


def documentation(document: Document, leave_out: tuple[str, ...]) -> str:
    """Render a document as ToolRet's documentation."""
    if isinstance(document, str):
        return document
    fields = {key: value for key, value in document.items() if key not in leave_out}
    if isinstance(fields.get("documentation"), str) and "tool_profile" not in fields:
        return fields["documentation"]
    return json.dumps(fields, ensure_ascii=False)


def query_rows(
    task: str, dataset: Dataset, tools: list[dict[str, str]], settings: dict[str, Any]
) -> Iterator[dict[str, str]]:
    """Yield rows of ``queries``."""
    for row, (query, labels) in enumerate(zip(dataset.queries, dataset.labels, strict=True)):
        right = [tools[item] for item in labels if item >= 0]
        relevant = [{"id": t["id"], "doc": t["documentation"], "relevance": 1} for t in right]
        yield {
            "id": f"{task}_query_{row}",
            "query": query,
            "instruction": settings["instruction"],
            "labels": json.dumps(relevant, ensure_ascii=False),
            "category": settings["category"],
        }


def append(path: Path, rows: list[dict[str, str]]) -> None:
    """Append lines to a file, which is created if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main.cli()
