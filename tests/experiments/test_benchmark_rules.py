"""The benchmark of each learner's cost per round, on the small world."""

import numpy as np
import pytest

from experiments.benchmarks import rules
from experiments.benchmarks.timing import quartiles
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, in_world


def configure(world, directory, learners):
    small = [*in_world(world, directory), f"learner=[{learners}]", "rounds=8", "repeats=2"]
    return config_of("benchmark_rules", *small)


def test_times_are_divided_by_those_of_greedy_in_the_same_turn(world, tmp_path, capsys):
    rules.main(configure(world, tmp_path, "greedy,linucb"))
    said = capsys.readouterr().out
    assert "GB/s in a copy" in said.splitlines()[0]
    found = {k: np.array(x["values"]) for k, x in read_results(tmp_path).items()}
    ratio = found["linucb/microseconds"] / found["greedy/microseconds"]
    np.testing.assert_allclose(found["linucb/over_greedy"], ratio)
    np.testing.assert_array_equal(found["greedy/over_greedy"], [1, 1])
    assert found["linucb/kilobytes"][0] > found["greedy/kilobytes"][0]
    assert quartiles(ratio) in said


@pytest.mark.slow
def test_the_best_rules_are_timed_on_a_random_catalogue(world, tmp_path, capsys, monkeypatch):
    few = {name: rules.BEST[name] for name in ("greedy", "mapped_tiled")}
    monkeypatch.setattr(rules, "BEST", few)
    cfg = configure(world, tmp_path, "greedy")
    cfg.size, cfg.rounds = "20x8", 32
    rules.main(cfg)
    assert "20x8: one seed" in capsys.readouterr().out
    found = read_results(tmp_path)
    assert found["mapped_tiled/over_greedy"]["mean"] > 0
    assert found["greedy/kilobytes"]["mean"] >= 20 * 8 * 4 / 1e3


def test_without_greedy_there_is_no_ratio(world, tmp_path):
    with pytest.raises(ValueError, match="learner must be with greedy among them"):
        rules.main(configure(world, tmp_path, "frozen,linucb"))
