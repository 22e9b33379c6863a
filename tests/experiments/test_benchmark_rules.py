"""What a round of each rule costs, on the small world."""

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from experiments.benchmarks import rules
from experiments.common.config import CONFIGS
from jaxret.tracking import read_results


def configure(world, directory, learners):
    small = [
        "dataset=jsonl",
        f"dataset.path={world / 'data'}",
        "tracking=files",
        f"encoder.path={world / 'encoder'}",
        f"cache={world / 'cache'}",
        f"directory={directory}",
        f"learner=[{learners}]",
        "rounds=8",
        "repeats=2",
    ]
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose("benchmark_rules", small)


def test_times_are_held_against_those_of_greedy_in_the_same_turn(world, tmp_path):
    rules.main(configure(world, tmp_path, "greedy,linucb"))
    found = {k: np.array(x["values"]) for k, x in read_results(tmp_path).items()}
    ratio = found["linucb/microseconds"] / found["greedy/microseconds"]
    np.testing.assert_allclose(found["linucb/over_greedy"], ratio)
    np.testing.assert_array_equal(found["greedy/over_greedy"], [1, 1])
    assert found["linucb/kilobytes"][0] > found["greedy/kilobytes"][0]


def test_without_greedy_there_is_no_ratio(world, tmp_path):
    with pytest.raises(ValueError, match="learner must be with greedy among them"):
        rules.main(configure(world, tmp_path, "frozen,linucb"))
