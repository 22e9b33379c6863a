from itertools import pairwise

import matplotlib as mpl
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text

from jaxret.evaluation.plots import (
    cumulative,
    curve_with_band,
    dots,
    label_curves,
    label_points,
    log_axes,
    new_figure,
    running_mean,
    save,
)

mpl.use("Agg")


@pytest.fixture
def axes():
    figure, ax = new_figure("round", "regret")
    yield ax
    plt.close(figure)


def test_the_band_is_one_standard_error_to_each_side_of_the_mean(axes):
    # Per round: mean 2, deviations -1, 0, 1, variance 1, standard error sqrt(1 / 3); then doubled.
    values = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    line = curve_with_band(axes, np.array([1, 2]), values, "ORAG")
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [2.0, 4.0])
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    for x, mean, stderr in ((1, 2.0, 0.577350), (2, 4.0, 1.154701)):
        heights = corners[corners[:, 0] == x, 1]
        ends = [heights.min(), heights.max()]
        np.testing.assert_allclose(ends, [mean - stderr, mean + stderr], rtol=1e-6)
    curve_with_band(axes, np.arange(3), np.ones((1, 3)), "one seed")
    assert (len(axes.lines), len(axes.collections)) == (2, 1)  # a line without a band


def test_dots_are_drawn_side_by_side_with_one_standard_error_to_each_side(axes):
    # Mean 2 and standard error sqrt(1 / 3) as above; a single seed has no standard error.
    rows = {"ORAG": [np.array([1.0, 2, 3]), np.ones(1)], "greedy": [np.ones(2), np.zeros(2)]}
    dots(axes, ["old", "new"], rows)
    first, second = axes.lines
    np.testing.assert_allclose(np.asarray(first.get_xydata()), [[-0.08, 2], [0.92, 1]])
    np.testing.assert_allclose(np.asarray(second.get_xydata()), [[0.08, 1], [1.08, 0]])
    assert first.get_color() != second.get_color()
    bars = axes.collections[0].get_segments()
    np.testing.assert_allclose(bars[0], [[-0.08, 1.422650], [-0.08, 2.577350]], rtol=1e-6)
    np.testing.assert_allclose(bars[1], [[0.92, 1.0], [0.92, 1.0]])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["old", "new"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ORAG", "greedy"]


def test_logarithmic_axes_write_out_the_marks_they_are_given(axes):
    axes.plot([128, 4096], [3.0, 70.0])
    log_axes(axes, [128, 1024, 4096])
    axes.figure.canvas.draw()
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    written = [text.get_text() for text in axes.get_xticklabels(which="both")]
    assert written == ["128", "1,024", "4,096"]


def test_names_of_curves_that_end_together_do_not_overlap(axes):
    ends = {"a": 0.5, "b": 0.501, "c": 0.499, "far above": 0.9}
    lines = {
        name: curve_with_band(axes, np.arange(2), np.array([[0.0, end]]), name)
        for name, end in ends.items()
    }
    label_curves(axes)
    axes.figure.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    upwards = sorted(boxes, key=lambda name: boxes[name].y0)
    assert upwards == ["c", "a", "b", "far above"]
    for lower, upper in pairwise(upwards):
        assert boxes[lower].y1 <= boxes[upper].y0
    assert min(box.x0 for box in boxes.values()) > axes.get_window_extent().x1
    for text in axes.texts:
        assert text.get_color() == lines[text.get_text()].get_color()
    # 'a' is the middle one of three close curves and 'far above' has no neighbour, so neither label
    # moves.
    for name in ("a", "far above"):
        height = axes.transData.transform((1, ends[name]))[1]
        assert abs((boxes[name].y0 + boxes[name].y1) / 2 - height) < 2.0


def test_names_of_points_hide_no_other_name_and_no_point(axes):
    rng = np.random.default_rng(0)
    crowd = np.stack([rng.uniform(9, 11, 8), rng.uniform(0.8, 0.82, 8)], axis=1)
    points = np.concatenate([crowd, [[1.0, 0.7], [300.0, 0.9]]])
    names = [f"method {i}" for i in range(8)] + ["far left", "far right"]
    axes.set_xscale("log")
    axes.scatter(*points.T)
    label_points(axes, points, names, ["#000000"] * 10)
    axes.figure.canvas.draw()
    places = axes.transData.transform(points)
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the connecting lines
    for i, box in enumerate(boxes):
        assert box.x0 > places[i, 0]
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert not any(box.contains(*place) for place in places)
    for i in (8, 9):  # isolated points have their label beside them
        assert abs((boxes[i].y0 + boxes[i].y1) / 2 - places[i, 1]) < 2.0


@pytest.mark.parametrize("window", [1, 3, 10, 50])
def test_a_running_mean_looks_back_and_never_ahead(window):
    values = np.random.default_rng(0).integers(0, 2, (2, 20))
    got = running_mean(values, window)
    for t in range(20):
        expected = values[:, max(0, t + 1 - window) : t + 1].mean(axis=1)
        np.testing.assert_allclose(got[:, t], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="window must be at least 1 round, got 0"):
        running_mean(values, 0)


def test_sums_of_float32_losses_keep_their_digits():
    losses = np.full(1_000_000, 0.1, np.float32)
    assert cumulative(losses)[-1] == pytest.approx(1e6 * float(np.float32(0.1)), rel=1e-12)


def test_a_figure_is_saved_in_a_new_folder_and_closed_and_changes_no_setting(tmp_path):
    before = dict(mpl.rcParams)
    figure, ax = new_figure("round", "regret")
    curve_with_band(ax, np.arange(1, 4), np.ones((2, 3)), "a name that needs room on the right")
    log_axes(ax, [1, 2, 3])
    label_curves(ax)
    save(figure, tmp_path / "figures" / "regret.png")
    assert not plt.fignum_exists(figure.number)
    height, width, _ = matplotlib.image.imread(tmp_path / "figures" / "regret.png").shape
    assert abs(width - 900) < 30  # 6 inches at 150 dots per inch
    assert abs(height - 540) < 30
    assert dict(mpl.rcParams) == before
