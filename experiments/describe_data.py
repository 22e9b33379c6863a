"""What kind of problem is each data set?

    uv run python -m experiments.describe_data                                         # DeskBank
    uv run python -m experiments.describe_data folder=../shared/data encoder=minilm
    uv run python -m experiments.describe_data folder=FOLDER only=[mine] \\
        +datasets.mine='{name: jsonl, path: mine}'

For each data set, as a Markdown table for a page of results: tools, labelled tools, queries, labels
per query, queries per tool (median over labelled tools), the share of queries that nearly repeat
another one, and accuracy and nDCG@10 of static retrieval. All queries count; on a held-out part the
numbers differ a little.

2 cores: DeskBank 10 s if its vectors are cached; encoding the twelve data sets takes far longer.
Expect for DeskBank 12 queries per tool, no near-duplicates and a static accuracy of 0.214.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

import jaxret as jr
from experiments.common import tables
from experiments.common.config import plain
from experiments.common.experiment import Found, Results, experiment
from experiments.common.loading import task_of
from experiments.common.run_directory import RunDirectory
from jaxret.runtime.files import existing
from jaxret.runtime.validate import require

#: Field of `jr.describe` -> head of its column, format of its numbers.
COLUMNS = {
    "tools": ("tools", ",.0f"),
    "labelled_tools": ("labels", ",.0f"),
    "queries": ("queries", ",.0f"),
    "labels_per_query": ("labels a query", ".2f"),
    "queries_per_tool": ("queries a tool", "g"),
    "near_duplicates": ("near-duplicates", ".3f"),
    "accuracy": ("static accuracy", ".3f"),
    "ndcg_at_10": ("static nDCG@10", ".3f"),
}


@experiment("describe_data")
def main(cfg: DictConfig, run: RunDirectory) -> Results:
    """Load, encode and describe each data set."""
    steps = {name: partial(described, cfg, spec) for name, spec in present(cfg).items()}
    return {
        f"{name}/{key}": found[key]
        for name, found in run.results(steps, "data set")
        for key in COLUMNS
    }


@main.check
def check(cfg: DictConfig) -> None:
    """Refuse unknown names, a missing folder, and data sets that the folder lacks."""
    for name in cfg.only or ():
        require("only", name, f"of {', '.join(cfg.datasets)}", cfg.datasets.__contains__)
    if cfg.folder is not None:
        existing(cfg.folder, f"folders such as {', '.join(cfg.datasets)}")
    if absent := [name for name in cfg.only or () if name not in present(cfg)]:
        raise ValueError(f"only={absent}: folder= must hold these data sets, got {cfg.folder}")


@main.show
def show(cfg: DictConfig, results: Found) -> None:
    """Print the table, and name the data sets that are missing."""
    print(markdown(cfg, results))
    if cfg.folder is not None and cfg.only is None:
        absent = [name for name in cfg.datasets if name not in present(cfg)]
        print(f"not in {cfg.folder}: {', '.join(absent) or 'nothing'}")


def present(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    """Return the chosen data sets that exist, with their paths."""
    found: dict[str, dict[str, Any]] = {}
    for name, spec in plain(cfg.datasets).items():
        if cfg.only is not None and name not in cfg.only:
            continue
        if (inside := spec.get("path")) is None:
            found[name] = spec | {"path": None}  # a built-in data set
        elif cfg.folder is not None and (path := Path(cfg.folder) / inside).exists():
            found[name] = spec | {"path": str(path)}
    return found


def described(cfg: DictConfig, spec: Mapping[str, Any]) -> dict[str, list[float]]:
    """Load a data set and return the numbers of `COLUMNS`."""
    dataset = {"options": {}} | {key: x for key, x in spec.items() if key != "document"}
    changed = {"dataset": dataset, "document": spec.get("document", cfg.document)}
    found = jr.describe(task_of(DictConfig(plain(cfg) | changed)))
    print(found, flush=True)
    return {key: [getattr(found, key)] for key in COLUMNS}


def markdown(cfg: DictConfig, results: Found) -> str:
    """Format the results as a table with a row per data set."""
    head, rows = ["data set", "document", *(head for head, _ in COLUMNS.values())], []
    for name, spec in present(cfg).items():
        numbers = (
            f"{results[f'{name}/{key}']['mean']:{form}}" for key, (_, form) in COLUMNS.items()
        )
        rows.append([name, spec.get("document", cfg.document), *numbers])
    return tables.markdown(head, rows, "---:", names=2)


if __name__ == "__main__":
    main.cli()
