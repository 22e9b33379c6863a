"""The speed benchmark of simulation, end to end at a small size."""

import io
from contextlib import redirect_stdout

import numpy as np
import pytest

from experiments.benchmarks import machine, simulate
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of

pytestmark = pytest.mark.slow
FORMS = ["64x16/floor", "64x16/blocked", "64x16/scan", "grid/one_program", "grid/runs"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Run the benchmark; return its results and what it printed."""
    directory = tmp_path_factory.mktemp("benchmark_simulate")
    small = ["sizes=[64x16]", "floats=1e6", "repeats=2", "with_torch=false"]
    small += ["grid.items=32", "grid.width=8", "grid.rounds=128", "grid.seeds=2", "grid.steps=2"]
    cfg = config_of("benchmark_simulate", *small, f"directory={directory}", "tracking=files")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as said:
        patch.setattr(machine, "in_place", lambda size: 10.0 * size)
        simulate.main(cfg)
    return {k: np.array(x["values"]) for k, x in read_results(directory).items()}, said.getvalue()


def test_every_form_is_compared_with_its_limits(printed):
    """The limits of the blocked form by hand: 64 items, width 16, blocks of 128, tiles of 8."""
    results, _ = printed
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


def test_ratios_are_of_the_same_turn(printed):
    results, _ = printed
    floor, blocked, scan, one, runs = (results[f"{form}/microseconds"] for form in FORMS)
    np.testing.assert_allclose(results["64x16/blocked_over_scan"], scan / blocked)
    np.testing.assert_allclose(results["64x16/blocked_over_floor"], blocked / floor)
    np.testing.assert_allclose(results["grid/one_program_over_runs"], runs / one)
    assert "64x16/blocked_over_torch" not in results


def test_the_machine_is_printed_first_and_then_what_limits_each_form(printed):
    _, said = printed
    assert "GB/s in a copy" in said.splitlines()[0]
    for form in FORMS:
        [line] = [line for line in said.splitlines() if f" {form} " in line]
        assert "memory" in line or "arithmetic" in line
