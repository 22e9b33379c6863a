"""Collects the results of a sweep, finished or not.

    uv run python -m experiments.collect runs/orag                    # writes a CSV, lists metrics
    uv run python -m experiments.collect runs/orag final/ndcg@10      # and prints a table of one

Reads the runs in a folder without changing them. A run is named by the settings in which the runs
differ. Writes every result of every run to ``collected.csv``, and a figure of the first metric to
``collected.png``, into the folder. Prints one table for each requested metric: a line per run, a
column per name (such as a learner). For an unfinished run it shows the accuracy of the finished
streams and the number of finished steps. Some seconds on one core.
"""

import csv
import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.common.tables import cell, print_table
from jaxret.evaluation import plots


class Collected(NamedTuple):
    """One run, finished or not."""

    words: dict[str, str]  # values in this run of the settings in which the runs differ
    state: str  # finished, or the number of finished steps
    results: dict[str, np.ndarray]  # name -> one value per seed


def collect(folder: Path) -> list[Collected]:
    """Read the runs in a folder, in the order of their settings."""
    folders = sorted(path.parent for path in folder.rglob("settings.json"))
    if not folders:
        raise FileNotFoundError(f"no runs in {folder}: a run has a settings.json")
    settings = [dict(_flat(json.loads((run / "settings.json").read_text()))) for run in folders]
    names = sorted({name for one in settings for name in one})
    differ = [n for n in names if len({one.get(n, "-") for one in settings}) > 1]
    values = [{name: one.get(name, "-") for name in differ} for one in settings]
    runs = [Collected(one, *_read(run)) for run, one in zip(folders, values, strict=True)]
    return sorted(runs, key=lambda run: list(map(_sortable, run.words.values())))


def figure(runs: Sequence[Collected], metric: str) -> Figure:
    """Draw one result of all runs, with a colour per name."""
    found = [
        {_name(key): x for key, x in run.results.items() if _metric(key) == metric} for run in runs
    ]
    shown = [(run, values) for run, values in zip(runs, found, strict=True) if values]
    names = sorted({name for _, values in shown for name in values})
    fig, ax = plots.new_figure(", ".join(runs[0].words), metric)
    fig.set_size_inches(max(6.0, 1.2 * len(shown)), 3.6)
    blank = np.full(1, np.nan)
    rows = {name: [values.get(name, blank) for _, values in shown] for name in names}
    plots.dots(ax, [_label(run) for run, _ in shown], rows)
    return fig


def main(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the runs of a sweep, such as runs/orag")
    parser.add_argument("metrics", nargs="*", help="such as final/ndcg@10: a table of each")
    given = parser.parse_args(arguments)
    try:
        runs = collect(given.folder)
    except FileNotFoundError as error:
        parser.error(str(error))
    known = list(dict.fromkeys(_metric(key) for run in runs for key in run.results))
    if unknown := [metric for metric in given.metrics if metric not in known]:
        parser.error(f"no run has {', '.join(unknown)} yet; known: {', '.join(known) or 'none'}")
    done = sum(run.state == "finished" for run in runs)
    print(f"{given.folder}: {len(runs)} runs, {done} finished")
    for metric in given.metrics:
        table(runs, metric)
    if not given.metrics:
        print(f"metrics, any of which can be asked for: {', '.join(known) or 'none yet'}")
    write_csv(given.folder / "collected.csv", runs, known)
    print(f"every result of every run: {given.folder / 'collected.csv'}")
    if known:
        first = [*given.metrics, *known][0]
        plots.save(figure(runs, first), given.folder / "collected.png")
    return 0


def table(runs: Sequence[Collected], metric: str) -> None:
    """Print one metric: a line per run, a column per name."""
    numbered = {str(number): run for number, run in enumerate(runs, start=1)}
    keys = [key for run in runs for key in run.results if _metric(key) == metric]
    columns = {key: _name(key) for key in dict.fromkeys(keys)}
    rows = {
        n: [cell(_estimate(run.results.get(k))) for k in columns] for n, run in numbered.items()
    }
    about = {head: {n: run.words[head] for n, run in numbered.items()} for head in runs[0].words}
    states = {"state": {n: run.state for n, run in numbered.items()}}
    print_table(metric, list(columns.values()), rows, about | states)


def _read(run: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Read the state and the results; files appear only when they are complete."""
    if (run / "results.json").exists():
        found = json.loads((run / "results.json").read_text())
        return "finished", {name: np.array(value["values"]) for name, value in found.items()}
    results = {}
    steps = sorted((run / "steps").glob("[!.]*.npz"))
    for path in steps:
        with np.load(path) as step:
            if {"order", "success"} <= set(step.files):  # a step with a stream
                name = path.stem.removesuffix("-online")
                results[f"{name}/online/accuracy"] = np.nanmean(step["success"], axis=1)
    return f"{len(steps)} steps", results


def _flat(content: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield pairs of a path ``a.b.c`` and its value as text."""
    if isinstance(content, Mapping) and content:
        for key, value in content.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    else:
        yield name, content if isinstance(content, str) else json.dumps(content)


def write_csv(path: Path, runs: Sequence[Collected], metrics: Sequence[str]) -> None:
    """Write a line per run and name; one without a name where nothing is found yet."""
    lines = [
        (number, run, name)
        for number, run in enumerate(runs, start=1)
        for name in dict.fromkeys(map(_name, run.results)) or [""]
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        heads = [f"{metric} {part}" for metric in metrics for part in ("mean", "stderr")]
        writer.writerow(["run", *runs[0].words, "state", "name", *heads])
        for number, run, name in lines:
            found = [_estimate(run.results.get(f"{name}/{m}".lstrip("/"))) or {} for m in metrics]
            values = [one.get(part, "") for one in found for part in ("mean", "stderr")]
            writer.writerow([number, *run.words.values(), run.state, name, *values])


def _estimate(values: np.ndarray | None) -> dict[str, Any] | None:
    if values is None:
        return None
    many = len(values) > 1
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if many else None
    return {"mean": float(values.mean()), "stderr": error}


def _name(key: str) -> str:
    return key.partition("/")[0] if "/" in key else ""


def _metric(key: str) -> str:
    return key.removeprefix(f"{_name(key)}/")


def _label(run: Collected) -> str:
    return "\n".join(run.words.values()) or "the run"


def _sortable(word: str) -> tuple[int, float, str]:
    """Return a key that sorts numbers by size, before words."""
    try:
        return 0, float(word), word
    except ValueError:
        return 1, 0.0, word


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
