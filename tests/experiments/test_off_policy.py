"""Coverage of intervals, policy selection and the cost of exploration on logs with known values.

Each is computed on twelve tools, and as a command.
"""

import numpy as np
import pytest
from scipy.special import softmax

import jaxret as jr
from experiments.off_policy import coverage, exploration, selection, worlds
from tests.experiments.configs import config_of, in_world, refused
from tests.experiments.conftest import values_of
from tests.problems import make_task

TASK = make_task(queries=100)
BEST = (TASK.queries @ TASK.theta.T).argmax(axis=1)
TRUTH = (TASK.labels[:, 0] == BEST).mean()
EXPLORES = worlds.policy("explores", {"preset": "frozen", "epsilon": 0.5, "learns": False})
UNIFORM = worlds.policy("uniform", {"preset": "orag", "tau": 50.0, "learns": False})


def begun(learner):
    return worlds.judged(worlds.learnt(learner, TASK, 0, 0), TASK)


def test_the_truth_is_a_sum_over_all_queries():
    still = begun(jr.frozen())
    assert still.value == pytest.approx(TRUTH)
    np.testing.assert_array_equal(still.probabilities, np.eye(12)[BEST])
    assert begun(EXPLORES).value == pytest.approx(0.5 * TRUTH + 0.5 / 12, rel=1e-5)
    drawn = begun(worlds.policy("drawn", {"preset": "orag", "tau": 0.2, "learns": False}))
    p = softmax(TASK.queries @ TASK.theta.T / 0.2, axis=1)
    np.testing.assert_allclose(drawn.probabilities, p, rtol=1e-4)
    assert drawn.value == pytest.approx(p[np.arange(100), TASK.labels[:, 0]].mean(), rel=1e-4)


def test_several_right_tools_count_once_each_and_padding_for_nothing():
    theta, queries = np.eye(4), np.eye(4)[:3]
    task = jr.Task.from_arrays(theta, queries, [[0, 1], [2], [3]])
    np.testing.assert_array_equal(worlds.right(task), [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def test_a_log_says_what_was_done():
    made = [*worlds.logs(EXPLORES, TASK, rounds=2_000, seeds=range(3))]
    t = np.arange(2_000)
    for log, query in made:
        assert log.probabilities is not None
        np.testing.assert_array_equal(log.query, TASK.queries[query])
        np.testing.assert_array_equal(log.reward, TASK.labels[query, 0] == log.item)
        expected = np.where(log.item == BEST[query], 0.5 + 0.5 / 12, 0.5 / 12)
        np.testing.assert_allclose(log.propensity, expected, rtol=1e-5)
        np.testing.assert_allclose(log.by_position[:, 0], log.propensity, rtol=1e-6)
        np.testing.assert_allclose(log.probabilities[t, log.item], log.propensity, rtol=1e-6)
        counts = np.bincount(query, minlength=100)  # sampled uniformly with replacement
        assert counts.min() > 3
        assert 3 < counts.std() < 6  # sqrt(20) = 4.5
    rewards = np.concatenate([log.reward for log, _ in made])
    value = 0.5 * TRUTH + 0.5 / 12
    assert rewards.mean() == pytest.approx(value, abs=4 * np.sqrt(value / len(rewards)))
    again = next(iter(worlds.logs(EXPLORES, TASK, rounds=2_000, seeds=[1])))
    np.testing.assert_array_equal(again.log.item, made[1].log.item)
    assert (made[0].log.item != made[1].log.item).any()


def test_a_log_is_that_of_a_learner_that_learns_unless_it_must_not():
    spec = {"preset": "greedy", "epsilon": 0.2, "eta": 0.01}
    learns = next(iter(worlds.logs(worlds.policy("a", spec), TASK, rounds=400, seeds=[0])))
    still = worlds.policy("b", spec | {"learns": False})
    stays = next(iter(worlds.logs(still, TASK, rounds=400, seeds=[0])))
    np.testing.assert_array_equal(best(stays.log), BEST[stays.query])
    assert (best(learns.log) != BEST[learns.query]).mean() > 0.1
    # The learner's probabilities in each round can be reconstructed from the log alone.
    log = learns.log._replace(probabilities=None)
    with pytest.warns(UserWarning, match="too few"):
        found = jr.off_policy(log, jr.frozen(), logging=worlds.policy("a", spec))
    with pytest.warns(UserWarning, match="too few"):
        known = jr.off_policy(learns.log, jr.frozen())
    assert found["DR"].low == pytest.approx(known["DR"].low, abs=1e-5)


def best(log):
    """Return the tool that is most likely to be shown."""
    assert log.probabilities is not None
    return log.probabilities.argmax(axis=1)


def small(directory, *more):
    return config_of("off_policy_coverage", f"directory={directory}", *more)


def test_intervals_cover_the_value_and_nothing_else(tmp_path):
    """The intervals never cover a value other than the policy's."""
    cfg, right = small(tmp_path, "logs=12", "rounds=600"), begun(jr.frozen())
    both = {"right": right, "wrong": right._replace(value=right.value / 4)}
    found = coverage.measured(cfg, EXPLORES, TASK, both)
    for name in ("IPS", "DR", "SNIPS", "Switch-DR"):
        assert found[f"right/coverage/{name}"].mean() > 0.7, name
        assert found[f"wrong/coverage/{name}"].mean() == 0, name
    assert found["refused"].tolist() == [0.0] * 12
    np.testing.assert_allclose(found["right/effective"], 600 * (0.5 + 0.5 / 12), rtol=1e-4)
    error = found["right/error/IPS"]
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(12)
    np.testing.assert_allclose(found["wrong/error/IPS"], error + 0.75 * right.value)


def test_logs_of_a_learner_that_never_explores_are_counted_as_refused(tmp_path):
    cfg = small(tmp_path, "logs=3", "rounds=50")
    found = coverage.measured(cfg, jr.frozen(), TASK, {"other": begun(jr.orag(tau=0.2))})
    assert found["refused"].tolist() == [1.0] * 3
    assert set(found) == {"refused", "earned"}


def cell(serves, covered, effective, warned):
    names = (*coverage.ANYTIME, *coverage.BOOTSTRAP)
    values = {f"coverage/{name}": np.array(covered, float) for name in names}
    more = {"effective": np.array(effective, float), "warned": np.array(warned, float)}
    return coverage.Cell(serves, "judged", values | more)


def test_a_cell_that_fails_without_a_warning_is_named():
    good = cell("good", [1, 1], [900, 900], [0, 0])
    loud = cell("loud", [1, 0], [9, 9], [1, 1])
    silent = cell("silent", [1, 0], [900, 900], [0, 0])
    said = coverage.sums([good, loud, silent])
    assert "of every judged policy together: in 4 of 6 logs (0.6667)" in said
    other = good._replace(judged="other", values=good.values | {"coverage/DR": np.array([0, 1])})
    assert "together: in 3 of 6 logs (0.5000)" in coverage.sums([good, other, loud, silent])
    assert "SNIPS: 4 of 6 intervals cover (0.6667); the least of 3 cells 0.500 (loud" in said
    assert "less than 0.9 in 2 of 3 cells" in said
    assert "comes in 0.500 of the logs there, in 0.000 of the others" in said
    assert "low without a warning: silent, judged: 0.500, 900 effective, warned in 0.00" in said
    assert "low without a warning: loud" not in said
    assert "covers in 0.750 (4) of the logs without a warning, in 0.500 (2)" in said


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "coverage"
    left_out = ("tau_0_05", "tau_0_03", "epsilon_0_3", "epsilon_0_01")
    given = [*in_world(world, directory), *(f"~logging.{name}" for name in left_out)]
    cfg = small(directory, *given, "logs=6", "rounds=300")
    coverage.main(cfg)
    return cfg, directory, values_of(directory)


def test_every_cell_is_on_the_page_with_its_figures(finished):
    cfg, directory, results = finished
    page = (directory / "coverage.md").read_text()
    for serves in cfg.logging:
        refused = results[f"{serves}/refused"]
        assert f"{refused.sum():.0f} of 6 |" in page
        for judged in cfg.judged:
            assert (f"| {serves} | {judged} | " in page) == (not refused.all())
    assert results["greedy_alone/refused"].all()
    for name in ("coverage", *(f"errors_{judged}" for judged in cfg.judged)):
        assert (directory / f"{name}.png").stat().st_size > 10_000
    held = [values for name, values in results.items() if name.endswith("coverage/IPS")]
    assert np.concatenate(held).mean() > 0.9


# Policy selection and the cost of exploration


def frozen_at(theta):
    learner = jr.frozen()
    return worlds.judged(jr.Snapshot(learner, learner.init(theta)), TASK)


@pytest.fixture(scope="module")
def uniform():
    return next(iter(worlds.logs(UNIFORM, TASK, rounds=2_000, seeds=[0])))


@pytest.fixture(scope="module")
def rules():
    return {"turned": frozen_at(-TASK.theta), "best": frozen_at(TASK.theta)}


def test_a_long_uniform_log_selects_the_best_rule_and_reports_the_regret_of_a_choice(
    uniform, rules
):
    gap = rules["best"].value - rules["turned"].value
    assert gap > 0.3
    log, query = uniform
    found = selection.chosen_by_values(log, query, rules)
    assert found["chance"] == pytest.approx(gap / 2)
    for estimator in selection.ESTIMATORS:
        if estimator != "MIPS":  # biased, since it averages over groups of tools
            assert (found[f"{estimator}/right"], found[f"{estimator}/regret"]) == (1, 0)
    # With the rewards inverted, the same log selects the worst policy and reports the loss.
    found = selection.chosen_by_values(log._replace(reward=1 - log.reward), query, rules)
    assert (found["IPS/right"], found["IPS/regret"]) == (0, pytest.approx(gap))


def test_any_of_several_rules_with_equal_estimates_may_be_chosen(uniform, rules):
    log, query = uniform
    found = selection.chosen_by_values(log._replace(reward=0 * log.reward), query, rules)
    assert found["IPS/right"] == 0.5
    assert found["IPS/regret"] == pytest.approx(found["chance"])


def test_select_is_judged_by_the_value_of_the_trained_learners(uniform):
    log, _ = uniform
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


@pytest.mark.slow
def test_selection_as_a_command(world, tmp_path):
    few = ["logs=2", "lengths=[40,120]", "~rules.mapped", "~rules.centred"]
    cfg = config_of("off_policy_selection", *in_world(world, tmp_path), *few)
    selection.main(cfg)
    found, page = values_of(tmp_path), (tmp_path / "selection.md").read_text()
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
    cfg = config_of("off_policy_exploration", *in_world(world, tmp_path), *few)
    exploration.main(cfg)
    found = values_of(tmp_path)
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


def test_wrong_settings_are_refused_before_any_work(world, tmp_path):
    for command, override, message in [
        (coverage, "logs=1", "logs must be >= 2, got 1"),
        (coverage, "alpha=1.0", r"alpha must be in \(0, 1\), got 1.0"),
        (coverage, "logging.tau_1.preset=gready", "unknown preset 'gready'"),
        (coverage, "+judged.static.taus=1", "'static': got an unexpected keyword argument 'taus'"),
        (selection, "lengths=[3]", "lengths must be >= 4 each"),
        (selection, "~rules.frozen", "rules must be with frozen"),
        (selection, "share=1.0", r"share must be in \(0, 1\), got 1.0"),
        (exploration, "epsilons=[0.1,0.2]", "epsilons must be 0 first, and more"),
        (exploration, "epsilons=[0,1.5]", r"epsilon must be in \[0, 1\], got 1.5"),
        (exploration, "seeds=0", "seeds must be >= 1, got 0"),
    ]:
        cfg = config_of(command.main.config, *in_world(world, tmp_path / "run"), override)
        refused(command.main, cfg, message)
