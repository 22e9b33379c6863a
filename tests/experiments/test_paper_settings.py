"""The paper's own settings on a small world, with a few updates at a hundred times its rate."""

import numpy as np
import pytest

import jaxret as jr
from experiments import paper_settings
from experiments.common.loading import task_of
from tests.experiments.configs import config_of, in_world
from tests.experiments.processes import stopped_at

SMALL = ["rate=1e-3", "updates=60", "batches=[10]", "batch=10", "copies=[1,2]", "exposures=[1]"]
SMALL += ["schedules=[constant]", "learner=[full_information]"]
SMALL += ["learners.full_information.tau=[0.1]", "learners.full_information.eta_over_tau=[0.1]"]
SMALL += ["seeds=2"]


@pytest.fixture(scope="module")
def configure(world):
    return lambda where, *more: config_of("paper_settings", *SMALL, *in_world(world, where), *more)


@pytest.fixture(scope="module")
def finished(configure, tmp_path_factory):
    directory = tmp_path_factory.mktemp("paper_settings")
    return directory, paper_settings.main(configure(directory))


@pytest.fixture(scope="module")
def widths(configure, tmp_path_factory):
    """Return the width of the encoder's vectors, and that of two copies side by side."""
    width = task_of(configure(tmp_path_factory.mktemp("task"))).theta.shape[1]
    return width, 2 * width


def test_rows_have_the_rounds_that_their_names_say(finished, widths):
    directory, results = finished
    rounds = {name: x for name, x in results.items() if name.endswith("/rounds")}
    batches = [f"adamw/constant/{width}/10" for width in widths]
    batches.append(f"no_success/constant/{widths[1]}/10")
    expected = {f"{name}/rounds": 600 for name in batches}
    once = rounds["full_information/rounds"]
    assert rounds == expected | {
        f"{x}/rounds": once for x in ("sgd/constant/1", "full_information")
    }
    assert (directory / "gain.png").stat().st_size > 5_000


def test_more_coordinates_move_scores_further(finished, widths):
    _, results = finished
    narrow, wide = (f"adamw/constant/{width}/10" for width in widths)
    control = f"no_success/constant/{widths[1]}/10"
    assert results[f"{wide}/largest"] > 1.3 * results[f"{narrow}/largest"]
    assert results[f"{wide}/success"] > 0 == results[f"{control}/success"]
    assert 0 < results[f"{wide}/reordered"] <= 1


def test_gains_are_those_of_the_last_rows_over_the_first(configure, finished, tmp_path):
    """Rank the streamed and the held-out queries with NumPy."""
    _, results = finished
    task = task_of(configure(tmp_path))
    parts = task.parts(validation=0.1, heldout=0.2, seeds=range(2))
    run = jr.simulate(
        jr.full_information(tau=0.1, eta=0.01), task, part=parts.training, seeds=range(2)
    )

    def recall(theta, queries):
        best = np.argsort(-task.queries[queries] @ theta.T, axis=1, kind="stable")[:, :10]
        labels = task.labels[queries]
        found = (best[:, :, None] == labels[:, None]).any(axis=1) & (labels >= 0)
        return (found.sum(axis=1) / (labels >= 0).sum(axis=1)).mean()

    before, key = task.queries @ task.theta.T, "full_information/largest"
    moved = [np.abs(task.queries @ np.asarray(x).T - before).max() for x in run.states.theta]
    assert results[key] == pytest.approx(np.mean(moved), rel=1e-4)
    for key, part in (("gain", parts.training), ("heldout/gain", parts.heldout)):
        pairs = zip(run.states.theta, part, strict=True)
        gain = np.mean([recall(np.asarray(x), of) - recall(task.theta, of) for x, of in pairs])
        assert results[f"full_information/{key}/recall@10"] == pytest.approx(gain, abs=1e-6)


def test_copies_of_a_vector_keep_all_inner_products():
    theta, queries = np.eye(3, 4, dtype=np.float32), np.ones((2, 4), np.float32) / 2
    task = jr.Task.from_arrays(theta, queries, [0, 1], groups=[0, 1])
    wide = paper_settings.widened(task, 4)
    assert wide.theta.shape == (3, 16)
    np.testing.assert_allclose(wide.queries @ wide.theta.T, queries @ theta.T, rtol=1e-6)
    np.testing.assert_allclose(wide.theta @ wide.theta.T, theta @ theta.T, rtol=1e-6)


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(
    configure, finished, tmp_path
):
    with stopped_at(1):
        paper_settings.main(configure(tmp_path))
    assert paper_settings.main(configure(tmp_path)) == finished[1]
