"""The search for settings, end to end on a small world, interrupted and resumed."""

import csv

import pytest

from experiments import tune
from experiments.common.run_directory import RunDirectory
from jaxret.runtime.checkpoint import Interrupted
from tests.experiments.configs import config_of, in_world

SMALL = ["trials=4", "search.schedule=[constant]"]
SMALL += ["learners.greedy.tau=[0.04]", "learners.greedy.eta_over_tau=[0.1]"]


def configure(world, directory, *overrides):
    return config_of("tune", *SMALL, *in_world(world, directory), *overrides)


@pytest.mark.slow
def test_a_search_that_is_stopped_does_the_trials_that_are_left(world, tmp_path, monkeypatch):
    directory, pause = tmp_path / "run", RunDirectory.pause

    def stop(self, done):
        if done == 2:
            raise Interrupted(self.directory, done)

    monkeypatch.setattr(RunDirectory, "pause", stop)
    with pytest.raises(SystemExit):
        tune.main(configure(world, directory))
    assert not (directory / "results.json").exists()
    monkeypatch.setattr(RunDirectory, "pause", pause)
    results = tune.main(configure(world, directory))
    with (directory / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["0", "1", "2", "3"]
    best = max(rows, key=lambda row: float(row["score"]))
    assert results["search/score"] == pytest.approx(float(best["score"]))
    assert results["search/tau"] == pytest.approx(float(best["tau"]))
    assert 0.005 <= results["search/tau"] <= 0.2
    assert (results["grid/tau"], results["grid/eta_over_tau"]) == pytest.approx((0.04, 0.1))
    assert results["grid/score"] > 0.25


def test_the_papers_space_of_the_header_is_accepted():
    [line] = [x.strip().strip("'") for x in (tune.__doc__ or "").splitlines() if "+search=" in x]
    cfg = config_of("tune", "learner=[paper_adamw]", "~search", line)
    assert set(cfg.search) == {"tau", "eta", "batch"}
    tune.check(cfg)
