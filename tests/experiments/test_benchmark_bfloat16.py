"""Rows in bfloat16 against float32, on the small world."""

import numpy as np
import pytest

from experiments.benchmarks import bfloat16
from jaxret.runtime.tracking import read_results
from tests.experiments.configs import config_of, in_world


def configure(world, directory, *more):
    small = [
        *in_world(world, directory),
        "seeds=2",
        "rules=[greedy]",
    ]
    return config_of("benchmark_bfloat16", *small, *more)


def test_every_kind_of_rows_is_played_and_held_against_float32(world, tmp_path, capsys):
    bfloat16.main(configure(world, tmp_path))
    assert "GB/s in a copy" in capsys.readouterr().out.splitlines()[0]
    results = {k: np.array(x["values"]) for k, x in read_results(tmp_path).items()}
    kinds = [f"greedy {rows}" for rows in ("float32", "nearest", "stochastic")]
    assert set(results) == {f"{kind}/{x}" for kind in kinds for x in bfloat16.COLUMNS}
    assert not results["greedy float32/final_gain"].any()
    for name in bfloat16.MEASURES:
        gain = results[f"greedy stochastic/{name}"] - results[f"greedy float32/{name}"]
        np.testing.assert_allclose(results[f"greedy stochastic/{name}_gain"], gain)


def test_rows_are_what_their_name_says():
    for name, make in bfloat16.ROWS.items():
        rule = make(bfloat16.MAKERS["mapped_32"]()).rule
        assert rule is not None
        assert rule.map_every == 32
        assert rule.rounding == (None if name == "float32" else name)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seeds=0", "seeds must be >= 1, got 0"),
        ("exposures=0", "exposures must be >= 1, got 0"),
        ("rules=[frozen]", "rules must be some of greedy, orag, mapped_32, mapped"),
    ],
)
def test_numbers_that_cannot_be_are_refused(world, tmp_path, override, message):
    with pytest.raises(ValueError, match=message):
        bfloat16.main(configure(world, tmp_path, override))
