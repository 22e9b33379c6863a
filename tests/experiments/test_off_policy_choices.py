"""Policy selection from logs, and the cost of exploration: on twelve tools, and as commands."""

import numpy as np
import pytest

import jaxret as jr
from experiments.off_policy import exploration, selection, worlds
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, in_world
from tests.problems import make_task

TASK = make_task(queries=100)
UNIFORM = worlds.policy("uniform", {"preset": "orag", "tau": 50.0, "learns": False})


def frozen_at(theta):
    learner = jr.frozen()
    return worlds.judged(jr.Snapshot(learner, learner.init(theta)), TASK)


@pytest.fixture(scope="module")
def rules():
    return {"turned": frozen_at(-TASK.theta), "best": frozen_at(TASK.theta)}


def test_a_long_uniform_log_selects_the_best_rule_and_reports_the_regret_of_a_choice(rules):
    gap = rules["best"].value - rules["turned"].value
    assert gap > 0.3
    log, query = next(iter(worlds.logs(UNIFORM, TASK, rounds=1_500, seeds=[0])))
    found = selection.chosen_by_values(log, query, rules)
    assert found["chance"] == pytest.approx(gap / 2)
    for estimator in selection.ESTIMATORS:
        if estimator != "MIPS":  # biased, since it averages over groups of tools
            assert (found[f"{estimator}/right"], found[f"{estimator}/regret"]) == (1, 0)
    # With the rewards inverted, the same log selects the worst policy and reports the loss.
    found = selection.chosen_by_values(log._replace(reward=1 - log.reward), query, rules)
    assert (found["IPS/right"], found["IPS/regret"]) == (0, pytest.approx(gap))


def test_any_of_several_rules_with_equal_estimates_may_be_chosen(rules):
    log, query = next(iter(worlds.logs(UNIFORM, TASK, rounds=40, seeds=[0])))
    found = selection.chosen_by_values(log._replace(reward=0 * log.reward), query, rules)
    assert found["IPS/right"] == 0.5
    assert found["IPS/regret"] == pytest.approx(found["chance"])


def test_select_is_judged_by_the_value_of_the_trained_learners():
    log, _ = next(iter(worlds.logs(UNIFORM, TASK, rounds=2_000, seeds=[0])))
    rules = {"frozen": jr.frozen(), "greedy": jr.greedy(eta=0.05)}
    found = selection.chosen_by_select(log, rules, TASK)
    with pytest.warns(UserWarning, match="too few effective rounds to judge frozen, greedy"):
        chosen = jr.select(log, [*rules.values()])
    truth = {name: worlds.judged(one, TASK).value for name, one in chosen.snapshots.items()}
    assert truth["greedy"] > truth["frozen"] + 0.05  # greedy has learned from half of the log
    assert chosen.best == "greedy"
    assert (found["right"], found["regret"]) == (1, 0)
    assert found["gain"] == pytest.approx(truth["greedy"] - truth["frozen"])
    assert found["chance"] == pytest.approx(found["gain"] / 2)
    assert found["sure"] == chosen.sure


def configure(name, world, directory, *more):
    return config_of(name, *in_world(world, directory), *more)


def values(directory):
    return {key: np.array(found["values"]) for key, found in read_results(directory).items()}


@pytest.mark.slow
def test_selection_as_a_command(world, tmp_path):
    few = ["logs=2", "lengths=[40,120]", "~rules.mapped", "~rules.centred"]
    cfg = configure("off_policy_selection", world, tmp_path, *few)
    selection.main(cfg)
    found, page = values(tmp_path), (tmp_path / "selection.md").read_text()
    best = max(found[f"value/{name}"][0] for name in cfg.rules)
    for name in cfg.logging:
        assert f"{name}: `jr.select`" in page
        assert (tmp_path / f"selection_{name}.png").stat().st_size > 10_000
        for rounds in (40, 120):
            regret = found[f"{name}/{rounds}/values/IPS/regret"]
            assert regret.shape == (2,)
            assert (regret >= 0).all()
            assert (regret <= best + 1e-12).all()


@pytest.mark.slow
def test_exploration_as_a_command(world, tmp_path):
    few = ["seeds=2", "epsilons=[0,0.2,1.0]", "exposures=2", "~rules.mapped", "~rules.drawn"]
    cfg = configure("off_policy_exploration", world, tmp_path, *few)
    exploration.main(cfg)
    found = values(tmp_path)
    assert found["greedy/0/cost"].tolist() == [0, 0]
    cost = found["greedy/0/accuracy"] - found["greedy/1/accuracy"]
    np.testing.assert_array_equal(found["greedy/1/cost"], cost)
    assert found["greedy/1/accuracy"].mean() == pytest.approx(1 / 24, abs=0.04)  # random tools
    for judged in cfg.judged:
        assert found[f"greedy/0/{judged}/refused"].tolist() == [1, 1]
        assert f"greedy/0/{judged}/effective" not in found
        assert found[f"greedy/0.2/{judged}/refused"].tolist() == [0, 0]
        rounds = (world / "data" / "queries.jsonl").read_text().count("\n") * 2
        uniform = found[f"greedy/1/{judged}/effective"]
        np.testing.assert_allclose(uniform, rounds / 24, rtol=1e-4)  # each weight is 24 or 0
    assert "| greedy | 0 | 1.000 |  |" in (tmp_path / "exploration.md").read_text()


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("selection", "lengths=[3]", "lengths must be >= 4 each"),
        ("selection", "~rules.frozen", "rules must be with frozen"),
        ("selection", "share=1.0", r"share must be in \(0, 1\), got 1.0"),
        ("exploration", "epsilons=[0.1,0.2]", "epsilons must be 0 first, and more"),
        ("exploration", "epsilons=[0,1.5]", r"epsilon must be in \[0, 1\], got 1.5"),
        ("exploration", "seeds=0", "seeds must be >= 1, got 0"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(world, tmp_path, name, override, message):
    cfg = configure(f"off_policy_{name}", world, tmp_path / "run", override)
    with pytest.raises(ValueError, match=message):
        {"selection": selection, "exploration": exploration}[name].main(cfg)
    assert not (tmp_path / "run").exists()
