"""The PyTorch side of the GPU benchmark computes the same as jaxret."""

import json

import jax
import numpy as np
import pytest

from experiments.benchmarks import gpu, rounds
from jaxret.simulation.scan import round_keys

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.parity

ROUNDS = 200


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    before = jax.config.values["jax_disable_most_optimizations"]
    parts = ["--parts", "simulation", "encoders", "training"]
    folder = str(tmp_path_factory.mktemp("gpu"))
    path = gpu.main(["--out", folder, "--small", "--minutes", "30", *parts])
    jax.config.update("jax_disable_most_optimizations", before)
    return json.loads(path.read_text())


def test_pytorch_is_timed_in_every_part(kept):
    assert kept["missing"] == {}
    names = ["simulation/40x128/torch_eager/float32", "encoders/minilm/torch"]
    names += [f"training/mlc/torch/{kind}" for kind in ("float32", "bfloat16")]
    assert all(kept["results"][name]["median"] > 0 for name in names)


def test_networks_compute_what_pytorch_computes(kept):
    assert kept["results"]["encoders/minilm/parity"] < 1e-6
    apart = kept["results"]["training/mlc/check"]
    assert apart["logits"] < 1e-5
    assert apart["step"] < 0.01


def test_the_rounds_of_pytorch_are_those_of_the_scan(monkeypatch):
    """PyTorch samples with the random numbers of the scan."""
    problem = rounds.random_problem(40, 128, ROUNDS)
    state, trace = rounds.scan(problem).call()
    keys, _ = round_keys(jax.random.key(0), np.arange(ROUNDS))
    uniforms, items = np.asarray(jax.vmap(jax.random.uniform)(keys)), []

    def draw(p):
        sums = np.cumsum(p.numpy())
        items.append(int(np.searchsorted(sums, uniforms[len(items)] * sums[-1], side="right")))
        return torch.tensor(items[-1:])

    monkeypatch.setattr(rounds, "torch_draw", draw)
    rows = rounds.torch_forms(problem)["torch_eager"]().call().numpy()
    assert items == trace.item.tolist()
    assert 0.3 < trace.success.mean() < 1
    np.testing.assert_allclose(rows, state.theta, atol=1e-6)
    assert abs(rows - np.asarray(problem.theta)).max() > 1e-3


def test_items_are_drawn_in_proportion():
    torch.manual_seed(0)
    p, n = np.array([0.5, 0.3, 0.15, 0.05, 0.0]), 4000
    drawn = [int(rounds.torch_draw(torch.tensor(p))) for _ in range(n)]
    apart = np.bincount(drawn, minlength=len(p)) / n - p
    assert (abs(apart) <= 4 * np.sqrt(p * (1 - p) / n)).all()


def test_it_takes_tf32_only_where_that_is_allowed(monkeypatch):
    from experiments.benchmarks import torch_twin

    precision = torch.get_float32_matmul_precision
    monkeypatch.setattr(torch_twin, "device", lambda: "cuda")
    with torch_twin.tf32(True):
        assert precision() == "high"
        with torch_twin.tf32(False):
            assert precision() == "highest"
        assert precision() == "high"
    assert precision() == "highest"
