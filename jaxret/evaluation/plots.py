"""Figures in one style: curves with bands over seeds, named at their right end.

    figure, ax = new_figure("round", "regret")
    curve_with_band(ax, rounds, regret, "ORAG")      # regret [S, T]
    label_curves(ax)
    save(figure, directory / "regret.png")

Readable at half the width of a page: letters of 11 points and more on 6 inches, colours that
colour-blind eyes tell apart, in the same order in every figure. No global setting of matplotlib is
changed, so a notebook keeps its own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

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
    ax: Axes, x: Float[np.ndarray, "T"], values: Float[np.ndarray, "S T"], label: str, **style: Any
) -> Line2D:
    """The mean over seeds as a line, and a band of one standard error to each side.

    The standard error is the sample deviation (ddof = 1) over sqrt(S); one seed has no band. What
    ``style`` does not say of the line is the next colour, and solid.
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
    ax: Axes, places: Sequence[str], rows: Mapping[str, Sequence[Float[np.ndarray, "_"]]]
) -> None:
    """Means over seeds as dots, side by side at named places, one standard error to each side.

    Args:
      ax: its x axis becomes that of the places.
      places: their names.
      rows: name -> for each place the values of its seeds; named above the axes.
    """
    shifts = 0.16 * (np.arange(len(rows)) - (len(rows) - 1) / 2)
    for shift, (name, row) in zip(shifts, rows.items(), strict=True):
        values = [np.asarray(seeds, np.float64) for seeds in row]
        mean = np.array([seeds.mean() for seeds in values])
        many = [len(seeds) > 1 for seeds in values]
        error = [
            np.std(seeds, ddof=many[i]) / np.sqrt(len(seeds)) for i, seeds in enumerate(values)
        ]
        x = np.arange(len(places)) + shift
        (line,) = ax.plot(x, mean, "o", markersize=6, label=name)
        ax.vlines(x, mean - error, mean + error, color=line.get_color(), linewidth=1.6)
    ax.set_xticks(range(len(places)), places)
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=len(rows), frameon=False, handletextpad=0
    )


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


def label_points(
    ax: Axes,
    points: Float[np.ndarray, "n 2"],
    names: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Writes a name to the right of each point, in its colour; none hides another, or a point.

    Call it once, when all is drawn: from then on the axes keep their place. Names that would meet
    stand in one column, each with a thin line to its point.
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


def heatmaps(
    panels: Mapping[str, Float[np.ndarray, "n m"]],
    *,
    rows: tuple[str, Sequence[float]],
    columns: tuple[str, Sequence[float]],
    label: str,
    outlined: Mapping[str, tuple[int, int]],
    lower_is_better: bool = False,
) -> Figure:
    """Grids of numbers side by side, two in a line, in one scale of colours; bright is good.

    Args:
      panels: title -> numbers, which are written into the cells.
      rows: name and n values of the vertical axis, the first at the top.
      columns: name and m values of the horizontal axis.
      label: what the numbers are.
      outlined: title -> row and column of the cell that is framed.
      lower_is_better: turns the colours round.
    """
    lines, across = -(-len(panels) // 2), min(len(panels), 2)
    height = 0.9 + lines * (0.55 + 0.3 * len(rows[1]))
    everything = np.concatenate([np.ravel(values) for values in panels.values()])
    scale = Normalize(everything.min(), everything.max())
    colours = plt.get_cmap("viridis_r" if lower_is_better else "viridis")
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            lines, across, figsize=(3.2 * across, height), squeeze=False, sharex=True, sharey=True
        )
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)
    for ax, (title, values) in zip(grid.flat, panels.items(), strict=False):
        ax.imshow(values, cmap=colours, norm=scale, aspect="auto")
        ax.set_title(title, fontsize=12)
        ax.set_xticks(range(len(columns[1])), [f"{x:g}" for x in columns[1]], rotation=45)
        plt.setp(ax.get_xticklabels(), ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(rows[1])), [f"{x:g}" for x in rows[1]])
        ax.tick_params(colors=GREY, labelsize=11, length=0)
        for place, value in np.ndenumerate(values):
            red, green, blue, _ = colours(scale(value))
            dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
            colour = "white" if dark else "black"
            ax.text(place[1], place[0], _short(value), ha="center", va="center", color=colour)
        if title in outlined:
            row, column = outlined[title]
            frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, clip_on=False)
            frame.set(edgecolor=COLOURS[1], linewidth=3, zorder=3)
            ax.add_patch(frame)
    figure.supxlabel(columns[0], fontsize=12)
    figure.supylabel(rows[0], fontsize=12)
    figure.suptitle(label, fontsize=12)
    return figure


def running_mean(values: Float[np.ndarray, "*S T"], window: int) -> Float[np.ndarray, "*S T"]:
    """Averages the last ``window`` rounds, or all rounds so far where there are fewer.

    Nothing is padded, so the first points are noisy as they must be, and no point looks ahead.

    Returns:
      an array of the shape of ``values`` [..., T].
    """
    if window < 1:
        raise ValueError(f"window must be at least 1 round, got {window}")
    total = cumulative(values)
    sums = total.copy()
    sums[..., window:] -= total[..., :-window]
    return sums / np.minimum(np.arange(1, total.shape[-1] + 1), window)


def cumulative(values: Float[np.ndarray, "*S T"]) -> Float[np.ndarray, "*S T"]:
    """Sums over rounds in float64: in float32 a long run's regret loses its last digits.

    Returns:
      an array of the shape of ``values`` [..., T].
    """
    return np.cumsum(np.asarray(values, np.float64), axis=-1)


def save(figure: Figure, path: str | Path) -> None:
    """Writes a figure (150 dots an inch), making its folder, and closes it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def _short(value: float) -> str:
    """Two digits that say something, in as little room as they need."""
    if abs(value) < 0.995:
        return f"{value:.2f}".replace("0.", ".", 1)
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:,.0f}"


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
