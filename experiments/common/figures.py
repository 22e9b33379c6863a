"""Figures of learners that several experiments draw."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots


def learning_figures(run: RunDirectory, curves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Draws and tracks accuracy and regret of every learner over the rounds.

    Args:
      run: run that gets the figures and, in its tracker, the mean curves.
      curves: learner -> ``success [S, T]`` and ``regret [S, T]``.
    """
    accuracy_figure(run, curves)
    rounds = _common_rounds(curves)
    figure, ax = plots.new_figure("round", "regret")
    for name, curve in curves.items():
        plots.curve_with_band(ax, rounds, curve["regret"][:, : len(rounds)], name)
        run.tracker.curve(f"regret/{name}", rounds, curve["regret"][:, : len(rounds)].mean(axis=0))
    plots.label_curves(ax)
    run.save_figure(figure, "regret")


def accuracy_figure(
    run: RunDirectory,
    curves: Mapping[str, Mapping[str, np.ndarray]],
    file: str = "accuracy",
) -> None:
    """Draws success over the rounds, averaged over a twentieth of the stream."""
    rounds = _common_rounds(curves)
    window = max(1, len(rounds) // 20)
    figure, ax = plots.new_figure("round", f"success, mean of {window} rounds")
    for name, curve in curves.items():
        accuracy = plots.running_mean(curve["success"][:, : len(rounds)], window)
        shown = plots.curve_with_band(ax, rounds, accuracy, name)
        if name == "frozen":
            shown.set_linestyle("--")
        run.tracker.curve(f"accuracy/{name}", rounds, accuracy.mean(axis=0))
    plots.label_curves(ax)
    run.save_figure(figure, file)


def _common_rounds(curves: Mapping[str, Mapping[str, np.ndarray]]) -> Int[np.ndarray, " T"]:
    """Returns the rounds of all seeds of all learners; success is NaN after a stream's end."""
    each = (np.isfinite(curve["success"]).all(axis=0).sum() for curve in curves.values())
    return 1 + np.arange(min(each))
