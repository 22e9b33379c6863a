"""Figures in one style: curves with bands over seeds, named at their right end.

    figure, ax = new_figure("round", "regret")
    curve_with_band(ax, rounds, regret, "ORAG")      # regret [S, T]
    label_curves(ax)
    save(figure, directory / "regret.png")

Readable at half the width of a page: letters of 11 points and more on 6 inches, colours that
colour-blind eyes tell apart, in the same order in every figure. No global setting of matplotlib is
changed, so a notebook keeps its own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# The palette of Okabe and Ito without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#6E6E6E"
STYLE: dict[Any, Any] = {
    "figure.figsize": (6.0, 3.6),
    "figure.constrained_layout.use": True,
    "font.size": 12,
    "axes.labelsize": 12,
    "axes.xmargin": 0.0,
    # Past the seventh curve the colours come again, dashed.
    "axes.prop_cycle": plt.cycler(linestyle=["-", "--"]) * plt.cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
}


def new_figure(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """An empty figure of 6 x 3.6 inches with one pair of axes."""
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots()
        ax.set(xlabel=x_label, ylabel=y_label)
        ax.tick_params(which="both", colors=GREY, labelsize=11)
        ax.grid(axis="y", color="#E6E6E6", linewidth=0.8)
        ax.set_axisbelow(True)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:,.10g}")
    return figure, ax


def curve_with_band(
    ax: Axes, x: Float[np.ndarray, "T"], values: Float[np.ndarray, "S T"], label: str
) -> Line2D:
    """The mean over seeds as a line, and a band of one standard error to each side.

    The standard error is the sample deviation (ddof = 1) over sqrt(S); one seed has no band.
    """
    values = np.asarray(values, np.float64)
    mean = values.mean(axis=0)
    (line,) = ax.plot(x, mean, label=label, linewidth=1.6)
    if len(values) > 1:
        stderr = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        ax.fill_between(
            x, mean - stderr, mean + stderr, color=line.get_color(), alpha=0.2, linewidth=0
        )
    return line


def log_axes(ax: Axes, ticks: Sequence[float]) -> None:
    """Makes both axes logarithmic, with marks on x at ``ticks``, written out."""
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=30, ha="right")
    ax.minorticks_off()


def label_curves(ax: Axes) -> None:
    """Writes the name of each curve at its right end, in its colour; no legend is needed.

    Call it once, when all curves are drawn: names that would overlap are moved apart.
    """
    lines = [line for line in ax.get_lines() if not str(line.get_label()).startswith("_")]
    ends = {line: np.asarray(line.get_xydata())[-1] for line in lines}
    lines.sort(key=lambda line: ends[line][1])
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # settles the axes, on which heights in points depend
    pixels = ax.transData.transform([ends[line] for line in lines])
    wanted = pixels[:, 1] * 72 / figure.dpi
    for line, shift in zip(lines, _spread(wanted, gap=14.0) - wanted, strict=True):
        ax.annotate(
            str(line.get_label()),
            xy=ends[line],
            xytext=(6, shift),
            textcoords="offset points",
            va="center",
            color=line.get_color(),
            fontsize=12,
            annotation_clip=False,
        )


def running_mean(values: Float[np.ndarray, "*S T"], window: int) -> Float[np.ndarray, "*S T"]:
    """Mean of the last ``window`` rounds, and of all rounds so far where there are fewer.

    Nothing is padded, so the first points are noisy as they must be, and no point looks ahead.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 round, got {window}")
    total = cumulative(values)
    sums = total.copy()
    sums[..., window:] -= total[..., :-window]
    return sums / np.minimum(np.arange(1, total.shape[-1] + 1), window)


def cumulative(values: Float[np.ndarray, "*S T"]) -> Float[np.ndarray, "*S T"]:
    """Sums over rounds in float64: in float32 a long run's regret loses its last digits."""
    return np.cumsum(np.asarray(values, np.float64), axis=-1)


def save(figure: Figure, path: str | Path) -> None:
    """Writes a figure (150 dots an inch), making its folder, and closes it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def _spread(wanted: Float[np.ndarray, "n"], gap: float) -> Float[np.ndarray, "n"]:
    """The heights nearest to ascending ``wanted`` ones that keep ``gap`` between neighbours.

    Least squares, by isotonic regression: less their places in the row, heights must not fall,
    so neighbours that do are pooled at their mean.
    """
    places = gap * np.arange(len(wanted))
    pools: list[tuple[float, int]] = []
    for mean in wanted - places:
        size = 1
        while pools and pools[-1][0] > mean:
            below, count = pools.pop()
            mean = (below * count + mean * size) / (count + size)
            size += count
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools]) + places
