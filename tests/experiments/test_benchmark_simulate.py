"""The speed benchmarks of simulation at small sizes: forms, learners and numbers of items."""

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import partial

import numpy as np
import pytest

from experiments.benchmarks import machine, rounds, rules, simulate, sizes
from experiments.benchmarks.timing import quartiles
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of

FORMS = ["64x16/floor", "64x16/blocked", "64x16/scan", "grid/one_program", "grid/runs"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run the benchmark; return its results and what it printed."""
    directory = tmp_path_factory.mktemp("benchmark_simulate")
    small = ["sizes=[64x16]", "floats=1e6", "repeats=2", "with_torch=false"]
    small += ["grid.items=32", "grid.width=8", "grid.rounds=128", "grid.seeds=2", "grid.steps=2"]
    cfg = config_of("benchmark_simulate", *small, f"directory={directory}", "tracking=files")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said:
        patch.setattr(machine, "in_place", lambda size: 10.0 * size)
        simulate.main(cfg)
    return values_of(directory), said.getvalue()


def test_every_form_is_compared_with_its_limits(finished):
    """The limits of the blocked form by hand: 64 items, width 16, blocks of 128, tiles of 8."""
    results, _ = finished
    for form in FORMS:
        assert (results[f"{form}/microseconds"] > 0).all()
    seconds = results["64x16/blocked/microseconds"] / 1e6
    assert results["64x16/in_place"] == 10 * 4 * 64 * 16  # in place of Theta's bytes
    assert results["grid/in_place"] == 10 * 4 * 32 * 8
    moved, computed = 4 * 3 * 64 * 16 / 128, 2 * 64 * (2 * 16 + 128 + 8)
    memory = seconds * results["64x16/in_place"] / moved
    arithmetic = seconds * results["machine/rate"] / computed
    np.testing.assert_allclose(results["64x16/blocked/over_memory"], memory)
    np.testing.assert_allclose(results["64x16/blocked/over_arithmetic"], arithmetic)


def test_ratios_are_of_the_same_turn_and_printed_after_the_machine(finished):
    results, said = finished
    floor, blocked, scan, one, runs = (results[f"{form}/microseconds"] for form in FORMS)
    np.testing.assert_allclose(results["64x16/blocked_over_scan"], scan / blocked)
    np.testing.assert_allclose(results["64x16/blocked_over_floor"], blocked / floor)
    np.testing.assert_allclose(results["grid/one_program_over_runs"], runs / one)
    assert "64x16/blocked_over_torch" not in results
    assert "GB/s in a copy" in said.splitlines()[0]
    for form in FORMS:
        [line] = [line for line in said.splitlines() if f" {form} " in line]
        assert "memory" in line or "arithmetic" in line


def with_learners(world, directory, learners):
    small = [*in_world(world, directory), f"learner=[{learners}]", "rounds=8", "repeats=2"]
    return config_of("benchmark_rules", *small)


def test_times_are_divided_by_those_of_greedy_in_the_same_turn(
    world, tmp_path, capsys, monkeypatch
):
    small = partial(machine.measured, repeats=1, copied=2**12, side=32)
    monkeypatch.setattr(machine, "measured", small)
    rules.main(with_learners(world, tmp_path, "greedy,linucb"))
    said = capsys.readouterr().out
    assert "GB/s in a copy" in said.splitlines()[0]
    found = values_of(tmp_path)
    ratio = found["linucb/microseconds"] / found["greedy/microseconds"]
    np.testing.assert_allclose(found["linucb/over_greedy"], ratio)
    np.testing.assert_array_equal(found["greedy/over_greedy"], [1, 1])
    assert found["linucb/kilobytes"][0] > found["greedy/kilobytes"][0]
    assert quartiles(ratio) in said


@pytest.mark.slow
def test_the_best_rules_are_timed_on_a_random_catalogue(world, tmp_path, capsys, monkeypatch):
    few = {name: rules.BEST[name] for name in ("greedy", "mapped_tiled")}
    monkeypatch.setattr(rules, "BEST", few)
    cfg = with_learners(world, tmp_path, "greedy")
    cfg.size, cfg.rounds = "20x8", 32
    rules.main(cfg)
    assert "20x8: one seed" in capsys.readouterr().out
    found = values_of(tmp_path)
    assert found["mapped_tiled/over_greedy"].mean() > 0
    assert found["greedy/kilobytes"].mean() >= 20 * 8 * 4 / 1e3


def of_sizes(directory, *changes):
    return config_of("benchmark_sizes", f"directory={directory}", "repeats=1", *changes)


@pytest.mark.slow
def test_memory_is_a_few_times_that_of_the_rows(tmp_path):
    sizes.main(of_sizes(tmp_path, "sizes=[80000x128]", "floats=1e8"))
    [peak] = values_of(tmp_path)["80000x128/peak_over_theta"]
    assert 2 < peak < 6  # at least two copies of Theta, and only a few more


@pytest.mark.slow
def test_time_grows_with_the_catalogue(tmp_path, capsys, monkeypatch):
    """Time is measured in this process; only memory needs a process per size."""
    monkeypatch.setattr(sizes, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    small = ["sizes=[8000x128,16000x128,32000x128]", "from_items=8000", "floats=1e8"]
    sizes.main(of_sizes(tmp_path, *small))
    assert "GB/s in a copy" in capsys.readouterr().out.splitlines()[0]
    found = values_of(tmp_path)
    assert found["32000x128/microseconds"].mean() > found["8000x128/microseconds"].mean()
    assert 0.3 < found["slope"].mean() < 2
    assert (tmp_path / "microseconds.png").is_file()


def test_rows_are_drawn_of_unit_length():
    rows = rounds.unit_rows(rounds.ROWS + 3, 4)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
