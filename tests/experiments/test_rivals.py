"""The experiment that compares learners with rival bandits, on the small world."""

import numpy as np
import pytest

from experiments import rivals
from jaxret.evaluation.compare import compare_paired
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of
from tests.problems import make_task

LEARNERS = "learner=[frozen,hybrid_balanced,greedy,linucb]"


def configure(world, directory, *more):
    small = [
        *in_world(world, directory),
        "seeds=2",
        "chunk=16",
        LEARNERS,
        "rivals=[linucb]",
        "learners.linucb.alpha=[0.1]",
        "learners.greedy.tau=[0.03]",
    ]
    return config_of("rivals", *small, *more)


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "rivals"
    rivals.main(configure(world, directory, "against=greedy"))
    return directory


@pytest.fixture(scope="module")
def finished(folder):
    return values_of(folder)


def test_the_table_marks_differences_that_are_not_significant():
    one = {"mean": 0.5, "stderr": 0.01}
    results = {f"{name}/{key}": one for name in "abc" for key in ("online", "final", "heldout")}
    for name, p in (("b", 0.04), ("c", 0.06)):
        values = {"gain": 0.1, "low": 0.05, "high": 0.15, "p": p}
        results |= {f"{name}/{key}": {"mean": x} for key, x in values.items()}
    lines = rivals.table(results, ["a", "b", "c"], "a").splitlines()
    assert lines[2] == "| `a` | 0.500 ±0.010 | 0.500 ±0.010 | 0.500 ±0.010 |  |"
    assert lines[3].endswith("| +0.100 (+0.050 to +0.150) |")
    assert lines[4].endswith("| +0.100 (+0.050 to +0.150) = |")


def test_p_values_are_corrected_by_holm_over_the_table():
    rng = np.random.default_rng(0)
    task = make_task()
    success = {"base": (rng.random((2, len(task))) < 0.5).astype(float)}
    for name, share in (("slight", 0.58), ("large", 0.68), ("none", 0.5)):
        success[name] = (rng.random((2, len(task))) < share).astype(float)
    found = rivals.against(success, "base", task)
    plain = {
        name: compare_paired(success[name] - success["base"], task.groups, name=name, other="base")
        for name in ("slight", "large", "none")
    }
    ascending = sorted(plain, key=lambda name: plain[name].p)
    least = 0.0
    for factor, name in zip((3, 2, 1), ascending, strict=True):
        least = max(least, min(1.0, factor * plain[name].p))
        assert found[f"{name}/p"] == pytest.approx(least)
        assert found[f"{name}/gain"] == pytest.approx(plain[name].difference)
    assert plain[ascending[0]].p < found[f"{ascending[0]}/p"] < 1


def test_rules_of_the_literature_run_from_every_start(finished):
    names = {name.partition("/")[0] for name in finished}
    rivals_of_the_list = {"linucb", "linucb_zero", "linucb_hybrid"}
    assert names == {"frozen", "hybrid_balanced", "greedy", *rivals_of_the_list}
    online = {name: finished[f"{name}/online"].mean() for name in names}
    assert online["linucb_hybrid"] > online["linucb"] > online["linucb_zero"]
    assert online["hybrid_balanced"] > online["frozen"]


def test_rules_are_tabulated_by_their_starts(world, tmp_path):
    cfg = configure(world, tmp_path, "against=greedy")
    rules = rivals.families(cfg)
    assert rules == {
        "static": {"document": "frozen", "hybrid": "hybrid_balanced"},
        "linucb": {"document": "linucb", "zero": "linucb_zero", "hybrid": "linucb_hybrid"},
    }
    learners = ("frozen", "hybrid_balanced", "linucb", "linucb_zero", "linucb_hybrid")
    results = {
        f"{name}/online": {"mean": 0.1 * n, "stderr": 0.01} for n, name in enumerate(learners, 1)
    }
    starts, cells = rivals.by_start(results, rules)
    assert starts == ["document", "zero", "hybrid"]
    assert cells == {
        "static": ["0.100 ±0.010", "", "0.200 ±0.010"],
        "linucb": ["0.300 ±0.010", "0.400 ±0.010", "0.500 ±0.010"],
    }


def test_both_tables_are_written_for_a_results_page(finished, folder):
    text = (folder / "rivals.md").read_text()
    found = [line.split(" | ")[0] for line in text.splitlines()]
    assert found.count("| `linucb`") == 2
    assert "| rule | document | zero | hybrid |" in text.splitlines()
    shown = f"{finished['linucb_hybrid/online'].mean():.3f}"
    assert any(line.startswith("| `linucb` |") and shown in line for line in text.splitlines())


def test_the_starts_may_be_fewer(world, tmp_path):
    cfg = configure(world, tmp_path, "against=greedy", "starts=[hybrid]")
    names = [grid.name for grid in rivals.entries(cfg)]
    assert names == ["frozen", "hybrid_balanced", "greedy", "linucb_hybrid"]
    cfg = configure(world, tmp_path, "against=greedy", "starts=[warm]")
    with pytest.raises(ValueError, match="starts must be some of document, zero, hybrid, got"):
        rivals.main(cfg)


def test_gains_are_differences_to_the_reference_rule(finished):
    mean = {name: finished[f"{name}/online"].mean() for name in ("frozen", "greedy")}
    gain, low, high = (finished[f"frozen/{key}"][0] for key in ("gain", "low", "high"))
    np.testing.assert_allclose(gain, mean["frozen"] - mean["greedy"], atol=0.02)
    assert low <= gain <= high
    assert "greedy/gain" not in finished


def test_the_memory_of_a_state_is_that_of_its_arrays(finished):
    assert finished["linucb/kilobytes"][0] > finished["frozen/kilobytes"][0] > 0


def test_a_learner_that_is_not_there_is_refused(world, tmp_path):
    with pytest.raises(
        ValueError, match="against must be one of frozen, hybrid_balanced, greedy, linucb"
    ):
        rivals.main(configure(world, tmp_path))
