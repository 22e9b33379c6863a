"""The benchmark of time and memory by number of items, at small sizes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from experiments.benchmarks import rounds, sizes
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of


def configure(directory, *changes):
    return config_of("benchmark_sizes", f"directory={directory}", "repeats=1", *changes)


@pytest.mark.slow
def test_memory_is_a_few_times_that_of_the_rows(tmp_path):
    sizes.main(configure(tmp_path, "sizes=[80000x128]", "floats=1e8"))
    peak = read_results(tmp_path)["80000x128/peak_over_theta"]["mean"]
    assert 2 < peak < 6  # at least two copies of Theta, and only a few more


@pytest.mark.slow
def test_time_grows_with_the_catalogue(tmp_path, capsys, monkeypatch):
    """Time is measured in this process; only memory needs a process per size."""
    monkeypatch.setattr(sizes, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    small = ["sizes=[8000x128,16000x128,32000x128]", "from_items=8000", "floats=1e8"]
    sizes.main(configure(tmp_path, *small))
    assert "GB/s in a copy" in capsys.readouterr().out.splitlines()[0]
    found = read_results(tmp_path)
    assert found["32000x128/microseconds"]["mean"] > found["8000x128/microseconds"]["mean"]
    assert 0.3 < found["slope"]["mean"] < 2
    assert (tmp_path / "microseconds.png").is_file()


def test_rows_are_drawn_of_unit_length():
    rows = rounds.unit_rows(rounds.ROWS + 3, 4)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_a_malformed_size_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(ValueError, match="sizes must be written as 1000x384"):
        sizes.main(configure(tmp_path, "sizes=[0x8]"))
