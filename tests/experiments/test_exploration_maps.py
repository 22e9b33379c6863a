"""Heat maps of the exploration grid: one colour scale, a number in every cell, bright is good."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from experiments.exploration import heatmaps

mpl.use("Agg")


def test_heat_maps_share_one_scale_and_write_every_number():
    panels = {"a": np.array([[0.0, 0.5, 1.0], [2.0, 12.0, 3.0]]), "b": np.full((2, 3), 0.5)}
    figure = heatmaps(
        {**panels, "c": panels["b"]},
        rows=("tau", [0.01, 1.0]),
        columns=("step", [0.1, 1, 1000]),
        label="success",
        outlined={"a": (1, 0)},
    )
    axes = {ax.get_title(): ax for ax in figure.axes if ax.get_visible()}
    assert list(axes) == ["a", "b", "c"]
    written = [text.get_text() for text in axes["a"].texts]
    assert written == [".00", ".50", "1.0", "2.0", "12", "3.0"]
    for ax in axes.values():
        assert ax.images[0].get_clim() == (0.0, 12.0)
    (frame,) = axes["a"].patches
    assert (*frame.get_xy(), frame.get_width(), frame.get_height()) == (-0.5, 0.5, 1, 1)
    assert [len(ax.patches) for ax in axes.values()] == [1, 0, 0]
    figure.canvas.draw()
    assert [text.get_text() for text in axes["c"].get_xticklabels()] == ["0.1", "1", "1000"]
    plt.close(figure)


def test_bright_cells_are_the_better_ones_for_gains_and_for_losses():
    values = {"a": np.array([[0.0, 1.0]])}
    axes = {"rows": ("y", [0]), "columns": ("x", [0, 1]), "label": "loss", "outlined": {}}
    for lower, good in ((False, 1), (True, 0)):
        figure = heatmaps(values, **axes, lower_is_better=lower)
        image = figure.axes[0].images[0]
        light = image.to_rgba(values["a"])[0, :, :3].sum(axis=1)
        assert light.argmax() == good
        colours = [text.get_color() for text in figure.axes[0].texts]
        assert colours[good] == "black"
        assert colours[1 - good] == "white"
        plt.close(figure)
