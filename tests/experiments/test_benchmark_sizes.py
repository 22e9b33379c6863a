"""The benchmark of time and memory by number of items, at small sizes."""

import numpy as np
import pytest

from experiments.benchmarks import rounds, sizes
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of


def configure(directory, *changes):
    return config_of("benchmark_sizes", f"directory={directory}", "repeats=1", *changes)


@pytest.mark.slow
def test_memory_and_time_grow_with_the_catalogue(tmp_path, capsys):
    small = ["sizes=[20000x128,40000x128,80000x128]", "from_items=20000", "floats=1e8"]
    sizes.main(configure(tmp_path, *small))
    assert "GB/s in a copy" in capsys.readouterr().out.splitlines()[0]
    found = read_results(tmp_path)
    peak = found["80000x128/peak_over_theta"]["mean"]
    assert 2 < peak < 6  # at least two copies of Theta, and only a few more
    assert found["80000x128/microseconds"]["mean"] > found["20000x128/microseconds"]["mean"]
    assert 0.3 < found["slope"]["mean"] < 2
    assert (tmp_path / "microseconds.png").is_file()


def test_rows_are_drawn_of_unit_length():
    rows = rounds.unit_rows(rounds.ROWS + 3, 4)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_a_malformed_size_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(ValueError, match="sizes must be written as 1000x384"):
        sizes.main(configure(tmp_path, "sizes=[0x8]"))
