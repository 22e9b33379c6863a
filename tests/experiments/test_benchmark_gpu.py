"""The GPU benchmark at tiny sizes, run without a GPU."""

import importlib
import json
import sys

import jax
import pytest

from experiments.benchmarks import gpu
from experiments.benchmarks.record import Record
from experiments.benchmarks.timing import Form


@pytest.fixture(autouse=True)
def optimised_as_before():
    before = jax.config.values["jax_disable_most_optimizations"]
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.slow
def test_every_part_runs_to_its_end(tmp_path):
    path = gpu.main(["--out", str(tmp_path), "--small", "--minutes", "60"])
    kept = json.loads(path.read_text())
    outcomes = {name: part["outcome"] for name, part in kept["parts"].items()}
    assert outcomes == dict.fromkeys(gpu.SHARES, "done")
    assert set(kept["missing"]) <= {"torch"}
    timed = {name for name, found in kept["results"].items() if "median" in str(found)}
    names = {f"simulation/40x128/{form}/float32" for form in ("scan", "blocked", "products")}
    names |= {"grid/one_program", "grid/runs", "grid/one_run"}
    names |= {"encoders/minilm/jax", "encoders/minilm/jax_device"}
    names |= {"training/mlc/jax/float32", "training/mlc/jax/bfloat16"}
    assert {name for name in timed if "torch" not in name} == names
    assert kept["results"]["simulation/40x128/same_items"] == 1
    assert (tmp_path / "gpu.png").stat().st_size > 0


def test_a_form_that_fails_or_finds_no_time_is_named_and_costs_no_other(tmp_path):
    def fails():
        raise RuntimeError("no such algorithm")

    record = Record(tmp_path / "gpu.json", seconds=60)
    builds = {"bad": fails, "good": lambda: Form(lambda: None)}
    record.compare("group", builds, scale=1, repeats=3)
    late = Record(tmp_path / "late.json", seconds=-1)
    assert not late.attempt("later", lambda: 1.0)
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["missing"] == {"group/bad/seconds_to_first": "RuntimeError: no such algorithm"}
    assert kept["results"]["group/good"]["n"] == 3
    kept = json.loads((tmp_path / "late.json").read_text())
    assert (kept["missing"], kept["results"]) == ({"later": "TimeoutError: no time left"}, {})


def test_a_part_that_fails_ends_alone_and_says_so(tmp_path, capsys, monkeypatch):
    cleared = []  # other tests share the caches that a part clears
    monkeypatch.setattr(jax, "clear_caches", lambda: cleared.append(1))
    record = Record(tmp_path / "gpu.json", seconds=60)
    record.part("one", 0.5, lambda record: {}["absent"])
    record.part("two", 0.5, lambda record: record.keep("results", "two", 2))
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["parts"]["one"]["outcome"] == "failed: KeyError: 'absent'"
    assert (kept["results"], len(cleared)) == ({"two": 2}, 2)
    assert "KeyError" in capsys.readouterr().err


def test_times_are_given_in_their_unit_with_quartiles(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.benchmarks.timing.in_turn", lambda *_: {"a": [1, 2, 3, 4, 5]})
    record = Record(tmp_path / "gpu.json", seconds=60)
    record.compare("group", {}, scale=1e3, repeats=5)
    expected = {"median": 3e3, "quartiles": [2e3, 4e3], "extremes": [1e3, 5e3], "n": 5}
    assert record.kept["results"] == {"group/a": expected}


def test_it_runs_without_hydra_and_wandb(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
    for name in [name for name in sys.modules if name.startswith("experiments")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("hydra", "omegaconf", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
    light = importlib.import_module("experiments.benchmarks.gpu")
    light.main(["--out", str(tmp_path), "--small", "--parts", "limits"])
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["parts"]["limits"]["outcome"] == "done"
    assert {"limits/bandwidth", "limits/float32"} <= set(kept["results"])


def test_an_unknown_part_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--out", str(tmp_path), "--parts", "limits", "everything"])
    assert "invalid choice: 'everything'" in capsys.readouterr().err
