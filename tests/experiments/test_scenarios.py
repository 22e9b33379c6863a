"""The suite of scenarios on the small world, and its measures by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxret as jr
from experiments.common.config import NAMES
from experiments.common.learners import learner_grid
from experiments.scenarios import __main__ as suite
from experiments.scenarios import page
from experiments.scenarios.measures import Windows, largest_loss, measures
from jaxret.learners.rank_one import rule_of
from jaxret.learners.replay import Replay
from jaxret.testing import quick_jit
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import step_of, values_of

SEEDS = 2


def configure(world, directory, *more):
    small = ["learner=[greedy]", f"seeds={SEEDS}", "exposures=2", "window=40", "guard.share=0.1"]
    return config_of("scenarios", *in_world(world, directory), *small, *more)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    """Run all scenarios."""
    directory = tmp_path_factory.mktemp("runs") / "scenarios"
    cfg = configure(world, directory)
    suite.main(cfg)
    return cfg, directory, values_of(directory)


def test_every_scenario_has_its_table_and_its_figure(finished):
    cfg, directory, _ = finished
    page = (directory / "scenarios.md").read_text()
    for name in cfg.scenarios:
        section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
        assert f"![{name}]({name}.png)" in section
        assert (directory / f"{name}.png").stat().st_size > 10_000
        for rule in ("frozen", "greedy"):
            assert f"| `{rule}` |" in section, (name, rule)


def test_each_rule_is_compared_with_its_calm_run_and_with_static_retrieval(finished):
    _, directory, results = finished
    static, calm, moved, guarded = (
        step_of(directory, name)
        for name in ("drift-static", "calm-greedy", "drift-greedy", "drift-greedy-guarded")
    )
    rounds = int(results["rounds"][0])
    assert moved["success"].shape == (SEEDS, rounds)
    at = round(0.5 * rounds)
    np.testing.assert_array_equal(moved["success"][:, :at], calm["success"][:, :at])
    expected = moved["success"].mean(axis=1)
    np.testing.assert_allclose(results["drift/greedy/accuracy"], expected)
    np.testing.assert_allclose(results["drift/frozen/accuracy"], static["success"].mean(axis=1))
    behind = np.cumsum(static["success"] * 1.0 - guarded["success"], axis=1)
    np.testing.assert_allclose(results["drift/greedy/guard/loss"], behind.max(axis=1).clip(0))
    cost = expected - guarded["success"].mean(axis=1)
    np.testing.assert_allclose(results["drift/greedy/guard/cost"], cost)
    assert results["budget"][0] == 0.1 * rounds
    assert results["drift/greedy/guard/loss"].max() <= results["budget"][0]


def test_every_scenario_changes_the_outcomes_except_rewriting_with_kept_rows(finished):
    cfg, directory, results = finished

    def success(name):
        return step_of(directory, name)["success"]

    calm = success("calm-greedy")
    for name in cfg.scenarios:
        changed = (success(f"{name}-greedy") != calm).any()
        assert changed == (name != "rewritten_keep"), name  # rows are kept
    keep, reset = (success(f"rewritten_{how}-static") for how in ("keep", "reset"))
    np.testing.assert_array_equal(keep, reset)  # static retrieval uses the current documents
    # With several tools shown, there is no guard and another calm run.
    assert "several_shown/greedy/guard/cost" not in results
    assert "drift/greedy/guard/cost" in results
    assert (results["several_shown/frozen/calm"] != results["drift/frozen/calm"]).any()


def test_tables_have_a_row_per_rule_and_the_overview_a_row_per_scenario():
    value = lambda mean, stderr: {"mean": mean, "stderr": stderr}  # noqa: E731
    results = {
        "delay/greedy/accuracy": value(0.25, 0.0125),
        "delay/greedy/lost": value(1234.5, 0.4),
        "delay/greedy/worst": value(-0.1, 0.02),
        "drift/frozen/worst": value(0.0, 0.0),
    }
    table = page.table(results, "delay", ["frozen", "greedy"]).splitlines()
    assert len(table) == 3  # static retrieval has no results for delay
    assert table[2].startswith("| `greedy` |  | 0.250 ± 0.013 | 1,234 |  |  | −0.100 ± 0.020 |")
    overview = page.overview(results, ["delay", "drift"], ["frozen", "greedy"]).splitlines()
    assert overview[0] == "| scenario | `greedy` |"
    assert overview[2:] == ["| delay | −0.100 ± 0.020 |", "| drift |  |"]


def test_measures_by_hand():
    """Ten rounds and windows of two; the disturbance begins in round 4."""
    calm = np.array([[1, 0, 1, 1, 1, 1, 0, 1, 1, 1]])
    success = np.array([[1, 0, 1, 1, 0, 0, 0, 1, 1, 1]])
    static = np.array([[0, 1, 1, 0, 1, 1, 1, 0, 0, 0]])
    found = measures(success, calm, static, 4, Windows(2, 0.0))
    assert found["accuracy"] == 0.6
    assert found["calm"] == 0.8
    np.testing.assert_allclose(found["lost"], 2 / (5 / 6))  # two successes, at 5/6 a round
    assert found["until"] == 2  # worse in rounds 4 and 5, not in 6 and 7
    assert found["back"] == 1
    assert found["worst"] == -1  # in windows 4-5 and 5-6
    assert found["loss"] == 2  # the largest cumulative deficit against static, after round 6
    never = measures(0 * success, calm, static, 4, Windows(2, 0.0))
    assert (never["until"], never["back"]) == (6, 0)
    fine = measures(calm, calm, 0 * static, 4, Windows(20, 0.0))
    assert (fine["until"], fine["loss"], fine["lost"]) == (0, 0, 0)
    np.testing.assert_allclose(fine["worst"], 0.8)  # the window is longer than the run


def test_the_largest_loss_is_at_least_zero():
    ahead = np.array([[1.0, 1.0], [0.0, 1.0]])
    np.testing.assert_array_equal(largest_loss(ahead, 1 - ahead), [0, 1])


def shown(learner, key):
    state = learner.init(jnp.eye(8))
    return learner.act(state, jnp.full(8, 1 / 8), key)


def test_learners_show_several_tools_where_they_can():
    specs = NAMES["learner"]

    def showing(name, k):
        return suite.showing(learner_grid(name, specs[name]), specs[name], k)

    for name in ("greedy", "mixture", "centred_replayed"):
        grid = showing(name, 5)
        learner = grid.learner(0)
        assert learner.name == name
        np.testing.assert_array_equal(grid.settings, showing(name, 1).settings)
        slate = quick_jit(partial(shown, learner))(jax.random.key(0))
        assert len(set(np.asarray(slate.items).tolist())) == 5, name
    assert showing("paper_adamw", 5) is None
    assert showing("linucb", 5) is None
    assert rule_of(showing("greedy", 1).learner(0)).policy.k == 1


@pytest.mark.parametrize("learner", [jr.mapped(rate=2.0), jr.greedy_replayed(per_round=3)])
def test_a_slate_changes_the_policy_alone(learner):
    same, several = suite.with_slate(learner, 1).structure, suite.with_slate(learner, 4).structure
    assert same == learner.structure
    rule = several.rule if isinstance(several, Replay) else several
    one = jr.policies.greedy()
    changed = rule._replace(policy=one)
    assert rule.policy.k == 4
    assert (several._replace(rule=changed) if isinstance(several, Replay) else changed) == same
