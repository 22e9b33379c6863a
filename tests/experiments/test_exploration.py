"""The grid of temperatures and step sizes on a small world, and its heat maps."""

from itertools import product

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments import exploration
from experiments.exploration import heatmaps
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import rows_of, step_of
from tests.experiments.processes import stopped_at

mpl.use("Agg")
WAYS = ("sampled", "greedy")
CELLS = [f"tau={tau}/eta_over_tau={step}" for tau in ("0.05", "5") for step in ("0", "0.1")]


def configure(world, directory, *more):
    small = ["seeds=2", "exposures=4", "chunk=128", "tau=[0.05,5.0]", "eta_over_tau=[0.0,0.1]"]
    small += ["~ways.sampled_likelihood", "~ways.epsilon_greedy"]
    return config_of("exploration", *small, *in_world(world, directory), *more)


@pytest.fixture(scope="module")
def finished(world):
    directory = world / "exploration"
    return directory, exploration.main(configure(world, directory))


def test_a_step_of_nothing_is_static_retrieval_in_every_cell(finished):
    _, results = finished
    for tau in ("0.05", "5"):
        still = f"tau={tau}/eta_over_tau=0"
        for way, metric in product(WAYS, ("ndcg@10", "recall@10", "accuracy")):
            expected = pytest.approx(results[f"frozen/final/{metric}"])
            assert results[f"{way}/{still}/final/{metric}"] == expected
        shown = results[f"greedy/{still}/online/accuracy"]
        assert shown == pytest.approx(results["frozen/online/accuracy"])


def test_drawing_without_learning_succeeds_as_often_as_p_says(world, finished):
    """Eight passes over the queries, at a temperature that makes the 24 tools equally likely."""
    _, results = finished
    labels = np.mean([len(row["labels"]) for row in rows_of(world / "data" / "queries.jsonl")])
    assert results["frozen/drawn/tau=5"] == pytest.approx(labels / 24, rel=0.05)
    chance, rounds = results["frozen/drawn/tau=5"], results["rounds"] / results["cells"]
    seen = results["sampled/tau=5/eta_over_tau=0/online/accuracy"]
    assert abs(seen - chance) < 4 * np.sqrt(chance / rounds)


def test_chosen_is_the_best_cell_by_the_validation_part_without_that_part(finished):
    directory, results = finished
    queries = round(results["rounds"] / results["cells"] / 8)
    share = round(0.1 * queries) / queries
    for way in WAYS:
        step = step_of(directory, way)
        online, ndcg = (x.mean(axis=1) for x in (step["online"], step["validation"][..., 2]))
        assert results[f"{way}/best/online/accuracy"] == step["success"].mean(axis=1).max()
        best = (online + ndcg).argmax()
        for metric, part in (("online/accuracy", online[best]), ("final/ndcg@10", ndcg[best])):
            mixed = share * part + (1 - share) * results[f"{way}/chosen/{metric}"]
            assert results[f"{way}/{CELLS[best]}/{metric}"] == pytest.approx(mixed)


def test_regrets_of_cells_differ_by_their_losses(finished):
    """All cells share a comparator; at tau = 5 without learning, a round costs nearly log 24."""
    directory, results = finished
    rounds = results["rounds"] / results["cells"] / 2
    loss = step_of(directory, "greedy")["loss"].mean(axis=1)
    regrets = [results[f"greedy/{cell}/regret"] for cell in CELLS]
    np.testing.assert_allclose(np.diff(regrets), rounds * np.diff(loss), rtol=1e-9)
    assert loss[2] == pytest.approx(np.log(24), rel=0.01)
    assert regrets[2] > regrets[3] > 0


def test_files_hold_the_grid_and_the_figures(finished):
    directory, results = finished
    with np.load(directory / "curves.npz") as curves:
        assert curves["greedy/accuracy"].shape == (4, 2)
        assert curves["greedy/final"].shape == (4, 2, 4)
    for name in ("online", "final", "regret", "temperature"):
        assert (directory / f"{name}.png").stat().st_size > 5_000
    assert results["cells"] == 8


def test_a_run_that_is_stopped_resumes_within_a_way_and_ends_with_the_same_numbers(world, finished):
    directory = world / "exploration_cut"
    with stopped_at(12):
        exploration.main(configure(world, directory))
    assert exploration.main(configure(world, directory)) == finished[1]


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
