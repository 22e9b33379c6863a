"""The command that measures a GPU, on tiny sizes without one."""

import json
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from experiments.benchmarks.gpu import figures
from experiments.benchmarks.gpu.__main__ import SHARES, main
from experiments.benchmarks.gpu.figures import compared
from experiments.benchmarks.gpu.kernels import KERNELS, kernels, swept
from experiments.benchmarks.gpu.record import Record
from experiments.benchmarks.gpu.settings import SMALL, by_name
from experiments.benchmarks.gpu.simulation import floor
from experiments.benchmarks.gpu.timing import compare, summary
from experiments.benchmarks.gpu.trial import broken, tried
from jaxret.environments.environment import Environment
from jaxret.simulation.blocked.simulate import simulate_blocked
from jaxret.simulation.blocked.tile_kernel import LARGEST

SAME_ITEMS = ("blocked", "kernel", "round_kernel", "mesh", "scan")
LIGHT = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(("hydra", "omegaconf", "wandb")))
from experiments.benchmarks import gpu
for module in pkgutil.iter_modules(gpu.__path__, gpu.__name__ + "."):
    importlib.import_module(module.name)
gpu.__main__.main(["--out", sys.argv[1], "--small", "--parts", "limits"])
"""


@pytest.fixture(autouse=True)
def optimised_as_before():
    before = jax.config.values["jax_disable_most_optimizations"]
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def measured(directory, *arguments):
    path = main(["--out", str(directory), "--small", *arguments])
    return json.loads(path.read_text())


def timed(kept, group):
    names = {name for name, found in kept["results"].items() if "median" in found}
    return {name.removeprefix(f"{group}/") for name in names if name.startswith(f"{group}/")}


@pytest.mark.slow
def test_grid_and_agreement_are_measured_and_the_figures_drawn(tmp_path):
    kept = measured(tmp_path, "--parts", "limits,grid,agreement", "--minutes", "30")
    assert {part["said"] for part in kept["parts"].values()} == {"done"}
    assert set(kept["missing"]) <= {"torch"}
    forms = {f"{form}/{who}" for form in ("blocked", "kernel") for who in ("one", "program")}
    assert forms <= timed(kept, "grid")
    name = f"agreement/{SMALL.sizes[0].name}"
    for learner in ("greedy", "orag"):  # on the CPU itself
        found = {form: kept["results"][f"{name}/{learner}/{form}/float32"] for form in SAME_ITEMS}
        assert {form: one["first"] for form, one in found.items()} == dict.fromkeys(SAME_ITEMS)
        for form in ("blocked", "mesh", "scan"):
            assert kept["results"][f"{name}/{learner}/{form}/bfloat16"]["same"] > 0.5
        assert 0.3 < kept["results"][f"{name}/{learner}/cpu"]["accuracy"] <= 1
    assert (tmp_path / "roofline.png").exists()


@pytest.mark.slow
def test_every_part_runs_to_its_end(tmp_path):
    kept = measured(tmp_path, "--minutes", "60")
    assert list(kept["parts"]) == list(SHARES)
    assert {part["said"] for part in kept["parts"].values()} == {"done"}
    assert set(kept["missing"]) <= {"torch"}
    size = SMALL.sizes[0].name
    forms = {"blocked/float32", "kernel/float32", "round_kernel/float32", "scan/bfloat16"}
    forms |= {"mesh/float32", "mesh/bfloat16"}
    assert forms <= timed(kept, f"simulation/{size}")
    sizes = {"round_kernel_piece_16", "round_kernel_warps_4", "kernel_tile_2", "block_8"}
    assert sizes <= timed(kept, f"sweeps/{size}")
    assert {"greedy", "mapped", "mixture"} <= timed(kept, f"rules/{SMALL.rules[0].name}")
    assert {"jax", "jax_device"} <= timed(kept, "encoders/qwen3_0_6b")
    assert {"jax/tf32", "jax/bfloat16"} <= timed(kept, "training/refiner")
    assert {"rounds.png", "roofline.png"} <= {file.name for file in tmp_path.iterdir()}


def test_what_fails_or_finds_no_time_is_named_and_costs_no_other_form(tmp_path):
    record = Record(tmp_path / "gpu.json", seconds=60, machine={})

    def broken():
        raise RuntimeError("no such algorithm")

    builds = {"bad": broken, "good": lambda: (lambda: None, 1)}
    compare(record, "group", builds, unit="s", scale=1, repeats=3)
    late = Record(tmp_path / "late.json", seconds=-1, machine={})
    late.attempt("later", lambda: 1.0)
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["missing"] == {"group/bad/start": "failed: RuntimeError: no such algorithm"}
    assert kept["results"]["group/good"]["n"] == 3
    kept = json.loads((tmp_path / "late.json").read_text())
    assert kept["missing"] == {"later": "skipped: no time left"}
    assert kept["results"] == {}


@pytest.mark.slow
def test_a_kernel_that_fails_when_it_is_tried_is_named_and_left_out(tmp_path):
    record = Record(tmp_path / "gpu.json", seconds=60, machine={})
    assert broken(record, ["no_such_kernel"], seconds=600) == ("no_such_kernel",)
    missing = json.loads((tmp_path / "gpu.json").read_text())["missing"]
    assert "KeyError: 'no_such_kernel'" in missing["no_such_kernel"]
    left = SMALL._replace(broken=("round_kernel",))
    assert list(kernels(left, SMALL.sizes[0])) == ["kernel"]
    assert not any("round_kernel" in name for name, _ in swept(left, SMALL.sizes[0]))
    large = SMALL.sizes[0]._replace(items=LARGEST + 1)
    assert list(kernels(SMALL, large)) == ["round_kernel"]


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_tried_against_the_form_that_it_stands_for(name, monkeypatch):
    tried(name)
    monkeypatch.setitem(KERNELS, name, lambda settings: partial(other_items, settings))
    with pytest.raises(RuntimeError, match=f"{name}: .*% of the items that greedy shows"):
        tried(name)


def other_items(settings, learner, state, stream, key):
    rolled = stream._replace(order=jnp.roll(stream.order, 1))
    return simulate_blocked(learner, state, Environment(), rolled, key)


def test_the_floor_is_that_of_the_arithmetic():
    bytes_, operations = floor(43215, 1536, 128, bandwidth=4.3e12, rate=67e12)
    assert bytes_ == pytest.approx(1.45e-6, rel=0.01)  # 6.2 MB a round
    assert operations == pytest.approx(3.96e-6, rel=0.01)  # .27 GFLOP


def test_it_runs_without_hydra_and_wandb(tmp_path):
    command = [sys.executable, "-c", LIGHT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["parts"]["limits"]["said"] == "done"
    assert {"limits/bandwidth", "limits/float32"} <= set(kept["results"])


def test_figures_are_drawn_after_each_part_which_goes_on_without_them(tmp_path, monkeypatch):
    parts = []

    def fails(path):
        parts.append(list(json.loads(path.read_text())["parts"]))
        raise OSError("no space left")

    monkeypatch.setattr(figures, "draw", fails)
    kept = measured(tmp_path, "--parts", "limits,precisions", "--minutes", "0")
    assert parts == [["limits"], ["limits", "precisions"]]
    assert kept["missing"]["figures/limits"] == "failed: OSError: no space left"


def test_figures_of_an_earlier_run_are_drawn_from_its_file(tmp_path, capsys):
    times = {
        "simulation/40x8/blocked/float32": 5,
        "simulation/40x8/kernel/float32": 4,
        "simulation/40x8/blocked/bfloat16": 3,
        "simulation/40x8/torch_eager/float32": 20,
        "simulation/40x8/torch_eager/tf32": 10,  # which nothing of ours is to be held against
        "encoders/minilm/jax": 2,
        "encoders/minilm/torch": 3,
        "limits/bandwidth": 1e9,
        "limits/float32": 1e9,
    }
    results = {name: summary([time], "us") for name, time in times.items()}
    results["encoders/minilm/torch/start"] = {"seconds_until_first": 0.1}
    assert compared(results) == {"simulation/40x8/float32": 5, "encoders/minilm": 1.5}
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"settings": by_name(SMALL), "results": results}))
    assert main(["--draw", str(path)]) == path
    drawn = [tmp_path / f"{name}.png" for name in ("rounds", "roofline", "against")]
    assert capsys.readouterr().out.split() == list(map(str, drawn))
    assert all(file.stat().st_size > 0 for file in drawn)


def test_an_unknown_part_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "--parts", "limits,everything"])
    assert "unknown ['everything']; known: limits, simulation" in capsys.readouterr().err
