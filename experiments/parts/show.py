"""What a finished run shows: a table in the terminal, figures in its directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from experiments.parts.run import Run
from jaxret import plots, tracking


def results_table(
    results: Mapping[str, Mapping[str, Any]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    words: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Prints mean ± standard error of the results ``row/column``; before them ``words``: column,
    then row -> what is written there."""
    words = words or {}
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for column in words:
        table.add_column(column, no_wrap=True)
    for column in columns:
        table.add_column(column.replace("/", "\n"), justify="right", no_wrap=True)
    for row in rows:
        said = [texts[row] for texts in words.values()]
        table.add_row(row, *said, *(cell(results.get(f"{row}/{column}")) for column in columns))
    Console(width=max(130, Console().width)).print(table)


def learning_figures(
    directory: Path, tracker: tracking.Tracker, curves: Mapping[str, Mapping[str, np.ndarray]]
) -> None:
    """Accuracy and regret of every learner over the rounds, drawn and tracked.

    Args:
      directory: where the PNG files go.
      tracker: gets the mean curves.
      curves: learner -> ``success [S, T]`` and ``regret [S, T]``.
    """
    accuracy_figure(directory, tracker, curves)
    rounds = 1 + np.arange(min(curve["regret"].shape[1] for curve in curves.values()))
    figure, ax = plots.new_figure("round", "regret")
    for name, curve in curves.items():
        plots.curve_with_band(ax, rounds, curve["regret"][:, : len(rounds)], name)
        tracker.curve(f"regret/{name}", rounds, curve["regret"][:, : len(rounds)].mean(axis=0))
    plots.label_curves(ax)
    plots.save(figure, directory / "regret.png")
    tracker.figure("regret", directory / "regret.png")


def accuracy_figure(
    directory: Path,
    tracker: tracking.Tracker,
    curves: Mapping[str, Mapping[str, np.ndarray]],
    file: str = "accuracy",
) -> None:
    """Success over the rounds, averaged over a twentieth of the stream."""
    rounds = 1 + np.arange(min(curve["success"].shape[1] for curve in curves.values()))
    window = max(1, len(rounds) // 20)
    figure, ax = plots.new_figure("round", f"success, mean of {window} rounds")
    for name, curve in curves.items():
        accuracy = plots.running_mean(curve["success"], window)[:, : len(rounds)]
        shown = plots.curve_with_band(ax, rounds, accuracy, name)
        if name == "frozen":
            shown.set_linestyle("--")
        tracker.curve(f"accuracy/{name}", rounds, accuracy.mean(axis=0))
    plots.label_curves(ax)
    plots.save(figure, directory / f"{file}.png")
    tracker.figure(file, directory / f"{file}.png")


def keep(run: Run, figure: Figure, name: str) -> None:
    """Saves and tracks a figure."""
    plots.save(figure, run.directory / f"{name}.png")
    run.tracker.figure(name, run.directory / f"{name}.png")


def cell(value: Mapping[str, Any] | None) -> str:
    """Mean ± standard error, as short as it is useful."""
    if value is None:
        return ""
    if abs(value["mean"]) >= 1e6 or 0 < abs(value["mean"]) < 5e-4:
        return f"{value['mean']:.2g}"
    digits = 1 if abs(value["mean"]) >= 100 else 3
    error = "" if not value["stderr"] else f" ±{value['stderr']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{error}"
