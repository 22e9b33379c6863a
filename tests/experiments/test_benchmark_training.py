"""The speed benchmark, end to end on one small block; with PyTorch where it is installed."""

import importlib.util

import pytest

from experiments.benchmarks import training as benchmark_training
from jaxret.encoders import load_encoder
from tests.experiments.configs import config_of

pytestmark = pytest.mark.slow
MODELS = [f"{model}/{kind}" for model in ("mlc", "refiner") for kind in ("training", "inference")]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    try:
        load_encoder("minilm")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("benchmark_training")
    small = ["batch=2", "tokens=16", "classes=170", "candidates=4", "pair_tokens=24", "layers=1"]
    small += ["pair_batches=[24,96]", "repeats=1", "calls=1", f"directory={directory}"]
    return benchmark_training.main(config_of("benchmark_training", *small, "tracking=files"))


def test_every_form_is_timed(results):
    for name in MODELS:
        assert results[f"{name}/jax_milliseconds"] > 0
    assert 4 <= results["cross_encoder/tokens_a_pair"] <= 24


def test_the_refiner_is_compared_with_the_fastest_cross_encoder(results):
    pairwise = [results[f"cross_encoder/{n}/milliseconds_a_query"] for n in (24, 96)]
    for name in ("refiner/batch", "refiner/alone"):
        ours = results[f"{name}/milliseconds_a_query"]
        assert results[f"{name}/over_cross_encoder"] == pytest.approx(min(pairwise) / ours)


@pytest.mark.parity
def test_pytorch_computes_the_same_and_is_timed(results):
    """Other logits or another step would have been refused before any time was taken."""
    if importlib.util.find_spec("torch") is None:
        assert not any(name.endswith("over_torch") for name in results)
        pytest.skip("torch is not installed")
    for name in MODELS:
        assert results[f"{name}/jax_over_torch"] > 0
