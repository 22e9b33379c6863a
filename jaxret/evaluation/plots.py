"""Draws figures in one style: curves with bands over seeds, labelled at their right end.

    figure, ax = new_figure("round", "regret")
    curve_with_band(ax, rounds, regret, "ORAG")      # regret [S, T]
    label_curves(ax)
    save(figure, directory / "regret.png")

Figures are readable at half the width of a page: text of 11 points or more on 6 inches, and colours
for colour-blind readers, in the same order in every figure. Global settings of matplotlib are not
changed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

# The palette of Okabe and Ito without its yellow, which is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#6E6E6E"
STYLE: dict[Any, Any] = {
    "figure.figsize": (6.0, 3.6),
    "figure.constrained_layout.use": True,
    "font.size": 12,
    "axes.labelsize": 12,
    "axes.xmargin": 0.0,
    # From the eighth curve on the colours are repeated with dashed lines.
    "axes.prop_cycle": plt.cycler(linestyle=["-", "--"]) * plt.cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
}


def new_figure(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """Make an empty figure of 6 x 3.6 inches with one pair of axes."""
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
    ax: Axes, x: Float[np.ndarray, "T"], values: Float[np.ndarray, "S T"], label: str, **style: Any
) -> Line2D:
    """Draw the mean over seeds as a line, and a band of one standard error to each side.

    The standard error is the sample deviation (ddof = 1) over sqrt(S); one seed has no band.

    Args:
      ax: the axes.
      x: [T].
      values: values of each seed [S, T].
      label: label of the curve.
      **style: of the line; by default solid, in the next colour.
    """
    values = np.asarray(values, np.float64)
    mean = values.mean(axis=0)
    (line,) = ax.plot(x, mean, label=label, linewidth=1.6, **style)
    if len(values) > 1:
        stderr = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        ax.fill_between(
            x, mean - stderr, mean + stderr, color=line.get_color(), alpha=0.2, linewidth=0
        )
    return line


def dots(
    ax: Axes, positions: Sequence[str], rows: Mapping[str, Sequence[Float[np.ndarray, "_"]]]
) -> None:
    """Draw means over seeds as dots at named positions, with one standard error to each side.

    Args:
      ax: the axes, whose x axis gets the positions.
      positions: names of the positions.
      rows: name -> for each position the values of its seeds; the names form a legend.
    """
    shifts = 0.16 * (np.arange(len(rows)) - (len(rows) - 1) / 2)
    for shift, (name, row) in zip(shifts, rows.items(), strict=True):
        values = [np.asarray(seeds, np.float64) for seeds in row]
        mean = np.array([seeds.mean() for seeds in values])
        many = [len(seeds) > 1 for seeds in values]
        error = [
            np.std(seeds, ddof=many[i]) / np.sqrt(len(seeds)) for i, seeds in enumerate(values)
        ]
        x = np.arange(len(positions)) + shift
        (line,) = ax.plot(x, mean, "o", markersize=6, label=name)
        ax.vlines(x, mean - error, mean + error, color=line.get_color(), linewidth=1.6)
    ax.set_xticks(range(len(positions)), positions)
    ax.set_xlim(-0.5, len(positions) - 0.5)
    ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=len(rows), frameon=False, handletextpad=0
    )


def log_axes(ax: Axes, ticks: Sequence[float]) -> None:
    """Make both axes logarithmic, with ticks on x at ``ticks``, written out."""
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=30, ha="right")
    ax.minorticks_off()


def label_curves(ax: Axes) -> None:
    """Write the label of each curve at its right end, in its colour.

    Labels that would overlap are moved apart, so call it once, after all curves are drawn.
    """
    lines = [line for line in ax.get_lines() if not str(line.get_label()).startswith("_")]
    ends = {line: np.asarray(line.get_xydata())[-1] for line in lines}
    lines.sort(key=lambda line: ends[line][1])
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # fixes the axes, which determine heights in points
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


def label_points(
    ax: Axes, points: Float[np.ndarray, "n 2"], names: Sequence[str], colours: Sequence[str]
) -> None:
    """Write a name to the right of each point, without overlaps.

    Call it once, after everything else is drawn: it fixes the position of the axes. Names that
    would overlap form one column, each with a thin line to its point.

    Args:
      ax: the axes.
      points: in data coordinates [n, 2].
      names: names of the points.
      colours: colours of the names.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    unit = 72 / figure.dpi
    x, y = ax.transData.transform(points).T * unit
    texts = [
        ax.annotate(
            name,
            xy=point,
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=11,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "relpos": (0, 0.5),
                "shrinkA": 0,
            },
        )
        for name, point, colour in zip(names, points, colours, strict=True)
    ]
    width = np.array([text.get_window_extent().width * unit for text in texts])
    edge, columns = -np.inf, []
    for i in np.argsort(x):
        if x[i] > edge:
            columns.append([])
        columns[-1].append(i)
        edge = x[i] + 16 + width[columns[-1]].max()
    box = ax.get_window_extent()
    for column in columns:
        column.sort(key=lambda i: y[i])
        heights = _spread(y[column], gap=13.0)
        heights += max(0.0, box.y0 * unit - heights[0])
        heights -= max(0.0, heights[-1] - box.y1 * unit)
        for i, height in zip(column, heights, strict=True):
            texts[i].set_position((x[column].max() + 8 - x[i], height - y[i]))


def running_mean(values: Float[np.ndarray, "*S T"], window: int) -> Float[np.ndarray, "*S T"]:
    """Average the last ``window`` rounds, or all rounds so far where there are fewer.

    Returns:
      means [..., T].

    Raises:
      ValueError: for a window below 1.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 round, got {window}")
    total = cumulative(values)
    sums = total.copy()
    sums[..., window:] -= total[..., :-window]
    return sums / np.minimum(np.arange(1, total.shape[-1] + 1), window)


def cumulative(values: Float[np.ndarray, "*S T"]) -> Float[np.ndarray, "*S T"]:
    """Sum over rounds in float64, since float32 is too coarse for the regret of a long run.

    Returns:
      sums [..., T].
    """
    return np.cumsum(np.asarray(values, np.float64), axis=-1)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure with 150 dots per inch, create its folder, and close the figure."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def _spread(wanted: Float[np.ndarray, "n"], gap: float) -> Float[np.ndarray, "n"]:
    """Return the heights nearest to ascending ``wanted`` heights with ``gap`` between neighbours.

    Solve least squares by isotonic regression: heights minus ``gap`` times their index must be
    nondecreasing.
    """
    positions = gap * np.arange(len(wanted))
    return isotonic_regression(wanted - positions).x + positions
