"""Figures of learners that several experiments draw."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots


def learning_figures(run: RunDirectory, curves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Draw and track accuracy and regret of every learner over the rounds."""
    accuracy_figure(run, curves)
    rounds = _common_rounds(curves)
    regrets = {name: curve["regret"][:, : len(rounds)] for name, curve in curves.items()}
    curves_figure(run, "regret", ("round", "regret"), rounds, regrets)


def accuracy_figure(
    run: RunDirectory, curves: Mapping[str, Mapping[str, np.ndarray]], file: str = "accuracy"
) -> None:
    """Draw success over the rounds, averaged over a twentieth of the stream."""
    rounds = _common_rounds(curves)
    window = max(1, len(rounds) // 20)
    means = {
        name: plots.running_mean(curve["success"][:, : len(rounds)], window)
        for name, curve in curves.items()
    }
    labels = ("round", f"success, mean of {window} rounds")
    curves_figure(run, file, labels, rounds, means, tracked="accuracy")


def curves_figure(
    run: RunDirectory,
    file: str,
    labels: tuple[str, str],
    at: Int[np.ndarray, " T"],
    curves: Mapping[str, Float[np.ndarray, "S T"]],
    tracked: str | None = None,
) -> None:
    """Draw a curve of each learner, dashed for static retrieval, and track the means."""
    figure, ax = plots.new_figure(*labels)
    for name, values in curves.items():
        points = at[-values.shape[1] :]
        line = plots.curve_with_band(ax, points, values, name)
        if name == "frozen":
            line.set_linestyle("--")
        run.tracker.curve(f"{tracked or file}/{name}", points, values.mean(axis=0))
    plots.label_curves(ax)
    run.save_figure(figure, file)


def _common_rounds(curves: Mapping[str, Mapping[str, np.ndarray]]) -> Int[np.ndarray, " T"]:
    """Return the rounds of all seeds of all learners; success is NaN after a stream's end."""
    each = (np.isfinite(curve["success"]).all(axis=0).sum() for curve in curves.values())
    return 1 + np.arange(min(each))
