"""The paper's own settings on DeskBank, with a few updates at a hundred times its rate."""

import numpy as np
import pytest

import jaxret as jr
from experiments import paper_settings
from tests.experiments.configs import config_of
from tests.experiments.processes import stopped_at

SMALL = ["rate=1e-3", "updates=60", "batches=[10]", "batch=10", "copies=[1,2]", "exposures=[1]"]
SMALL += ["schedules=[constant]", "learner=[greedy]", "learners.greedy.tau=[0.02]"]
SMALL += ["learners.greedy.eta_over_tau=[0.1]", "seeds=2", "tracking=files"]


def configure(directory, *overrides):
    return config_of("paper_settings", *SMALL, f"directory={directory}", *overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("paper_settings")
    return directory, paper_settings.main(configure(directory))


def test_rows_have_the_rounds_that_their_names_say(finished):
    directory, results = finished
    rounds = {name: x for name, x in results.items() if name.endswith("/rounds")}
    batches = {f"adamw/constant/{width}/10/rounds": 600 for width in (384, 768)}
    assert rounds == batches | {
        "no_success/constant/768/10/rounds": 600,
        "sgd/constant/1/rounds": rounds["greedy/rounds"],
        "greedy/rounds": rounds["greedy/rounds"],
    }
    assert (directory / "gain.png").stat().st_size > 5_000


def test_rewards_move_scores_in_a_direction_and_more_coordinates_move_them_further(finished):
    _, results = finished
    narrow, wide, control = (
        f"{name}/10"
        for name in ("adamw/constant/384", "adamw/constant/768", "no_success/constant/768")
    )
    assert results[f"{wide}/largest"] > 1.3 * results[f"{narrow}/largest"]
    assert results[f"{wide}/success"] > 0 == results[f"{control}/success"]
    for part in ("gain", "heldout/gain"):
        assert results[f"{wide}/{part}/ndcg@10"] > results[f"{control}/{part}/ndcg@10"]
    assert 0 < results[f"{wide}/reordered"] <= 1


def test_copies_of_a_vector_keep_all_inner_products():
    theta, queries = np.eye(3, 4, dtype=np.float32), np.ones((2, 4), np.float32) / 2
    task = jr.Task.from_arrays(theta, queries, [0, 1], groups=[0, 1])
    wide = paper_settings.widened(task, 4)
    assert wide.theta.shape == (3, 16)
    np.testing.assert_allclose(wide.queries @ wide.theta.T, queries @ theta.T, rtol=1e-6)
    np.testing.assert_allclose(wide.theta @ wide.theta.T, theta @ theta.T, rtol=1e-6)


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(finished, tmp_path):
    with stopped_at(1):
        paper_settings.main(configure(tmp_path))
    assert paper_settings.main(configure(tmp_path)) == finished[1]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("schedules=[cosine]", "schedules must be one of inverse_sqrt, constant, got cosine"),
        ("copies=[0]", r"copies must be one or more numbers >= 1, got \[0\]"),
        ("updates=0", "updates must be >= 1, got 0"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, override, message):
    with pytest.raises(ValueError, match=message):
        paper_settings.main(configure(tmp_path / "run", override))
