"""The grid of warm starts, end to end on some of DeskBank's tools."""

import shutil

import numpy as np
import pytest

from experiments import warm_start
from experiments.common.loading import task_of
from jaxret.runtime.files import write_json_lines
from jaxret.theory.comparators import proximal_losses
from tests.experiments.configs import config_of
from tests.experiments.conftest import rows_of, step_of
from tests.experiments.processes import stopped_at

SMALL = ["exposures=1", "seeds=2", "chunk=64", "learner=[orag]", "+learners.orag.projection=none"]
SMALL += ["learners.orag.tau=[0.5]", "learners.orag.eta_over_tau=[0.001,0.0001]"]
STARTS = ("document/name_description", "document/full", "tool2vec", "mixture")


@pytest.fixture(scope="module")
def configure(world, tmp_path_factory):
    """Return a function that composes a small run, on queries with one label each."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copy(world / "data" / "tools.jsonl", folder)
    lines = rows_of(world / "data" / "queries.jsonl")
    write_json_lines(folder / "queries.jsonl", (x for x in lines if len(x["labels"]) == 1))
    data = ("dataset=jsonl", f"dataset.path={folder}", "tracking=files")
    return lambda directory: config_of("warm_start", *SMALL, *data, f"directory={directory}")


@pytest.fixture(scope="module")
def finished(configure, tmp_path_factory):
    directory = tmp_path_factory.mktemp("warm_start")
    return directory, warm_start.main(configure(directory))


@pytest.fixture(scope="module")
def parted(configure, finished):
    """Return the settings, the task, the mask of the usage and the other parts."""
    cfg = configure(finished[0])
    task = task_of(cfg)
    return cfg, task, *warm_start.part(task.groups, cfg)


def read(directory, step):
    return step_of(directory, f"orag-{step}")


def shared_loss(directory, start):
    """Return losses at the base's setting, from the start's own step if both settings agree."""
    step = start.replace("/", "-")
    has_own = (directory / "steps" / f"orag-{step}-shared.npz").exists()
    return read(directory, f"{step}-{'shared' if has_own else 'own'}")["loss"].astype(np.float64)


def test_no_start_streams_the_usage_and_all_stream_the_same_queries(finished, parted):
    directory, results = finished
    *_, usage, parts = parted
    masks = np.stack([usage, parts.validation, parts.heldout, parts.training])
    np.testing.assert_array_equal(masks.sum(axis=0), 1)
    assert usage.sum() == pytest.approx(0.1 * len(usage), abs=1)
    assert results["usage/queries"] == usage.sum()
    orders = [read(directory, f"{start.replace('/', '-')}-own")["order"] for start in STARTS]
    for order in orders:
        np.testing.assert_array_equal(order, orders[0])
    np.testing.assert_array_equal(np.unique(orders[0]), np.flatnonzero(parts.training))


def test_usage_is_parted_by_question(configure, tmp_path):
    groups = np.arange(400) // 10
    usage, parts = warm_start.part(groups, configure(tmp_path))
    for mask in (usage, *parts):
        assert not set(groups[mask]) & set(groups[~mask])


def test_static_numbers_of_tool2vec_are_those_of_the_mean_queries(finished, parted):
    """Recomputed with NumPy: unit means of usage queries, and documents for unused tools."""
    _, results = finished
    _, task, usage, parts = parted
    theta = task.theta.copy()
    labels = task.labels[:, 0]
    for tool in np.unique(labels[usage]):
        mean = task.queries[usage & (labels == tool)].mean(axis=0)
        theta[tool] = mean / np.linalg.norm(mean)
    right = (task.queries @ theta.T).argmax(axis=1) == labels
    for protocol, mask in (("static", parts.training), ("heldout_static", parts.heldout)):
        expected = right[mask].mean()
        assert results[f"orag/tool2vec/{protocol}/accuracy"] == pytest.approx(expected, abs=2e-3)


def test_regret_differences_are_differences_of_losses(finished):
    """All starts are measured against one comparator at one setting."""
    directory, results = finished
    base = shared_loss(directory, "document/full")
    for start in ("document/name_description", "tool2vec", "mixture"):
        less = base - shared_loss(directory, start)
        quarter = less[:, : less.shape[1] // 4].sum(axis=1).mean()
        assert results[f"orag/{start}/saved/whole"] == pytest.approx(less.sum(axis=1).mean())
        assert results[f"orag/{start}/saved/quarter"] == pytest.approx(quarter)


def test_theorem_5_1_holds_from_every_start_where_its_assumptions_do(finished, parted):
    """Rows are free and the estimator is unbiased, so no regret may exceed its bound."""
    directory, results = finished
    cfg, task, usage, parts = parted
    _, from_usage = warm_start.build(task, usage, parts, cfg)
    tau, eta = (results[f"orag/document/full/online/{name}"] for name in ("tau", "eta"))
    counts = parts.training.astype(float)
    for start, theta_1 in ({"document/full": task.theta} | from_usage).items():
        given = {"tau": tau, "eta": eta, "counts": counts}
        found, theirs = proximal_losses(theta_1, task.queries, task.labels, **given)
        distance2 = np.sum((np.asarray(found.theta, np.float64) - theta_1) ** 2)
        term = results[f"orag/{start}/shared/first_term"]
        assert term == pytest.approx(distance2 / (2 * eta), rel=1e-4)
        loss = shared_loss(directory, start).sum(axis=1).mean()
        regret = loss - theirs[parts.training].sum()
        assert term < results[f"orag/{start}/shared/theorem_5_1"]
        assert regret < results[f"orag/{start}/shared/theorem_5_1"]
        if start == "document/full":
            assert results[f"orag/{start}/shared/regret"] == pytest.approx(regret, abs=0.1)


def test_rounds_are_counted_until_the_difference_is_never_negative_again():
    below, above = np.full(10, -1.0), np.full(10, 1.0)
    for seeds, window, expected in (
        ([[below, above]], 1, 10),
        # The window of 4 that ends in round 11 still sums to -2; the one of round 12 sums to 0.
        ([[below, above]], 4, 11),
        ([[above], [above]], 3, 0),
        ([[above, below]], 1, None),
        ([[below], [2 * above]], 1, 0),  # averages over seeds first
        ([[below, above, below, above]], 1, 30),  # ignores a rise that does not last
    ):
        ahead = np.stack([np.concatenate(parts) for parts in seeds])
        assert warm_start.rounds_until(ahead, window=window) == expected


def test_a_start_that_is_worse_is_worth_negative_rounds():
    """The start is right in every other round, and after 20 rounds of learning in all rounds."""

    def stub(static, success):
        success, static = (np.tile(x, (2, 1)).astype(float) for x in (success, static))
        rest = ({}, success, None, success[0], None)
        return warm_start.FromStart((1.0, 1.0), success, static, *rest)

    half, full = np.tile([0, 1], 20), np.ones(40)
    slow = np.concatenate([half[:20], full[:20]])
    worse, better = stub(half, slow), stub(full, full)
    found = warm_start.leads(worse, better)
    assert found["rounds_to_match"] == -22  # last miss: round 19, in windows of 4 up to 22
    np.testing.assert_allclose(found["lead/first"], -0.5)
    np.testing.assert_allclose(found["lead/last"], 0.0)
    assert warm_start.leads(better, worse)["rounds_to_match"] == 22


def test_files_hold_the_curves_and_figures(finished):
    directory, results = finished
    with np.load(directory / "curves.npz") as curves:
        regret = curves["orag/mixture/regret"]
    assert regret[:, -1].mean() == pytest.approx(results["orag/mixture/shared/regret"])
    for name in ("regret_orag", "accuracy_orag"):
        assert (directory / f"{name}.png").stat().st_size > 10_000
    assert any("regret/orag/tool2vec" in line for line in rows_of(directory / "metrics.jsonl"))


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(
    configure, finished, tmp_path
):
    """Only one step remains; SIGTERM arrives in the first chunk of the step."""
    steps = tmp_path / "steps"
    shutil.copytree(finished[0] / "steps", steps)
    left = steps / "orag-mixture-own.npz"
    left.unlink()
    with stopped_at(1):
        warm_start.main(configure(tmp_path))
    assert not left.exists()
    saved = tmp_path / "checkpoints" / left.stem / "checkpoints"
    assert [path.name for path in saved.glob("[0-9]*")] == ["1"]
    assert warm_start.main(configure(tmp_path)) == finished[1]
