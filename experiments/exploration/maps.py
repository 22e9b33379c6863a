"""Figures of a grid of temperatures and steps: maps of all cells, and the best step at each tau."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from omegaconf import DictConfig

from experiments.common.run_directory import RunDirectory
from jaxret.evaluation import plots

NDCG = 2  # position of nDCG among the metrics of `experiments.exploration`


class Grid(NamedTuple):
    """The results of one learner in each of G cells, on S seeds."""

    accuracy: Float[np.ndarray, "G S"]  # accuracy online
    final: Float[np.ndarray, "G S 4"]  # accuracy, recall, nDCG, completeness
    regret: Float[np.ndarray, "G S"]
    chosen: int  # index of the cell chosen on the validation part
    rest_accuracy: Float[np.ndarray, "G S"]  # the same without the validation part
    rest_final: Float[np.ndarray, "G S 4"]


def figures(
    cfg: DictConfig, run: RunDirectory, grids: Mapping[str, Grid], results: Mapping[str, np.ndarray]
) -> None:
    """Draws maps of the grid, and the best step's success over the temperature."""
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
        figure = heatmaps(
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


def heatmaps(
    panels: Mapping[str, Float[np.ndarray, "n m"]],
    *,
    rows: tuple[str, Sequence[float]],
    columns: tuple[str, Sequence[float]],
    label: str,
    outlined: Mapping[str, tuple[int, int]],
    lower_is_better: bool = False,
) -> Figure:
    """Draws grids of numbers, two in a line, in one scale of colours whose bright end is good.

    Args:
      panels: title -> numbers [n, m], which are written into the cells.
      rows: name and n values of the vertical axis, the first at the top.
      columns: name and m values of the horizontal axis.
      label: name of the numbers.
      outlined: title -> row and column of the framed cell.
      lower_is_better: reverses the colours.

    Returns:
      the figure.
    """
    lines, across = -(-len(panels) // 2), min(len(panels), 2)
    height = 0.9 + lines * (0.55 + 0.3 * len(rows[1]))
    everything = np.concatenate([np.ravel(values) for values in panels.values()])
    scale = Normalize(everything.min(), everything.max())
    colours = plots.plt.get_cmap("viridis_r" if lower_is_better else "viridis")
    with plots.plt.rc_context(plots.STYLE):
        figure, grid = plots.plt.subplots(
            lines, across, figsize=(3.2 * across, height), squeeze=False, sharex=True, sharey=True
        )
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (title, values) in zip(grid.flat, panels.items(), strict=False):
        ax.imshow(values, cmap=colours, norm=scale, aspect="auto")
        ax.set_title(title, fontsize=12)
        ax.set_xticks(range(len(columns[1])), [f"{x:g}" for x in columns[1]], rotation=45)
        plots.plt.setp(ax.get_xticklabels(), ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(rows[1])), [f"{x:g}" for x in rows[1]])
        ax.tick_params(colors=plots.GREY, labelsize=11, length=0)
        for place, value in np.ndenumerate(values):
            red, green, blue, _ = colours(scale(value))
            dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
            colour = "white" if dark else "black"
            ax.text(place[1], place[0], _short(value), ha="center", va="center", color=colour)
        if title in outlined:
            row, column = outlined[title]
            frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, clip_on=False)
            frame.set(edgecolor=plots.COLOURS[1], linewidth=3, zorder=3)
            ax.add_patch(frame)
    figure.supxlabel(columns[0], fontsize=12)
    figure.supylabel(rows[0], fontsize=12)
    figure.suptitle(label, fontsize=12)
    return figure


def _short(value: float) -> str:
    """Formats a number with two significant digits."""
    if abs(value) < 0.995:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:,.0f}"
