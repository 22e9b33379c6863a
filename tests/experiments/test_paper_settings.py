"""The paper's own settings on a small world: scores change only slightly in a few updates."""

import pytest

from experiments import paper_settings
from tests.experiments.configs import config_of, in_world
from tests.experiments.processes import stopped_at


def configure(world, directory, *overrides):
    small = ["seeds=2", "rates.adamw=[1e-5]", "rates.sgd=[1e-5]"]
    return config_of("paper_settings", *small, *in_world(world, directory), *overrides)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("paper_settings")
    return directory, paper_settings.main(configure(world, directory))


@pytest.mark.parametrize("rule", ["adamw", "sgd"])
def test_scores_move_but_less_than_the_bound_and_than_what_would_matter(finished, rule):
    directory, results = finished
    largest, bound = (results[f"{rule}/1e-05/{x}"] for x in ("largest", "bound"))
    assert 0 < results[f"{rule}/1e-05/mean"] < largest < bound < results["gap/median"]
    assert abs(results[f"{rule}/1e-05/ndcg"]) < 1e-3
    assert (directory / "change.png").stat().st_size > 5_000


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(finished, world, tmp_path):
    with stopped_at(1):
        paper_settings.main(configure(world, tmp_path))
    assert paper_settings.main(configure(world, tmp_path)) == finished[1]


def test_an_unknown_rule_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match=r"rates: unknown \['sdg'\]; known: adamw, sgd"):
        paper_settings.main(configure(world, tmp_path / "run", "+rates.sdg=[1.0]"))
