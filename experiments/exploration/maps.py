"""Figures of a grid of temperatures and steps: maps of all cells, and the best step at each tau."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from omegaconf import DictConfig

from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots

NDCG = 2  # its position among the metrics of `experiments.exploration`


class Grid(NamedTuple):
    """What one way to act reached in each of G cells, on S seeds."""

    accuracy: Float[np.ndarray, "G S"]  # online
    final: Float[np.ndarray, "G S 4"]  # accuracy, recall, nDCG, completeness
    regret: Float[np.ndarray, "G S"]
    chosen: int  # by the validation part
    rest_accuracy: Float[np.ndarray, "G S"]  # the same without the validation part
    rest_final: Float[np.ndarray, "G S 4"]


def figures(
    cfg: DictConfig, run: RunDirectory, grids: Mapping[str, Grid], results: Mapping[str, np.ndarray]
) -> None:
    """Maps of the grid, and the best step's success over the temperature."""
    shape = (len(cfg.tau), len(cfg.eta_over_tau))
    chosen = {name: divmod(found.chosen, shape[1]) for name, found in grids.items()}
    rounds = results["rounds"][0] / results["cells"][0] / cfg.seeds
    maps = {
        "online": ("online accuracy", {n: x.accuracy for n, x in grids.items()}, {}),
        "final": (f"final nDCG@{cfg.k}", {n: x.final[..., NDCG] for n, x in grids.items()}, {}),
        "regret": (
            "regret a round",
            {n: x.regret / rounds for n, x in grids.items()},
            {"lower_is_better": True},
        ),
    }
    for name, (label, values, more) in maps.items():
        figure = plots.heatmaps(
            {way: x.mean(axis=1).reshape(shape) for way, x in values.items()},
            rows=("temperature tau", cfg.tau),
            columns=("eta / tau", cfg.eta_over_tau),
            label=f"{label} (framed: the cell that would have been chosen)",
            outlined=chosen,
            **more,
        )
        run.save_figure(figure, name)
    figure, ax = plots.new_figure("temperature tau", "online accuracy, best step")
    for name, found in grids.items():
        cells = found.accuracy.reshape(*shape, -1)
        steps = cells.mean(axis=2).argmax(axis=1)
        plots.curve_with_band(ax, np.array(cfg.tau), cells[np.arange(shape[0]), steps].T, name)
    still = [results[f"frozen/drawn/tau={tau:g}"][0] for tau in cfg.tau]
    ax.plot(cfg.tau, still, ":", color=plots.GREY, label="drawn, frozen")
    level = results["frozen/online/accuracy"][0]
    ax.plot(cfg.tau, [level] * len(still), "--", color=plots.GREY, label="best, frozen")
    ax.set_xscale("log")
    ax.set_xticks(cfg.tau, [f"{tau:g}" for tau in cfg.tau])
    ax.minorticks_off()
    plots.label_curves(ax)
    run.save_figure(figure, "temperature")
