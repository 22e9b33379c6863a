"""The benchmark of training speed, end to end on one small block, with PyTorch if installed."""

import importlib.util

import numpy as np
import pytest

from experiments.benchmarks import training as benchmark_training
from jaxret.encoders import load_encoder
from tests.experiments.configs import config_of
from tests.experiments.conftest import values_of
from tests.problems import unit

pytestmark = pytest.mark.slow
MODELS = [f"{model}/{kind}" for model in ("mlc", "refiner") for kind in ("training", "inference")]


def random_vectors(encoder, texts, **options):
    """Stand in for encoding all documents, which takes longer than all that is timed."""
    return unit(np.random.default_rng(len(texts)).normal(size=(len(texts), 384)))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    try:
        load_encoder("minilm")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("benchmark_training")
    small = ["batch=2", "tokens=16", "classes=170", "candidates=4", "pair_tokens=24", "layers=1"]
    small += ["pair_batches=[24,96]", "repeats=2", f"directory={directory}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark_training, "encode", random_vectors)
        benchmark_training.main(config_of("benchmark_training", *small, "tracking=files"))
    return values_of(directory)


def test_every_form_is_timed_and_compared_with_its_limits(results):
    forms = [f"{name}/jax" for name in MODELS]
    forms += ["refiner/alone/jax", "cross_encoder/24", "cross_encoder/96"]
    for name in forms:
        assert (results[f"{name}/milliseconds"] > 0).all()
        for limit in ("memory", "arithmetic"):
            ratios = results[f"{name}/over_{limit}"]
            times = results[f"{name}/milliseconds"]
            np.testing.assert_allclose(ratios[0] / ratios[1], times[0] / times[1])
    assert 4 <= results["cross_encoder/tokens_a_pair"] <= 24


def test_limits_are_of_the_tokens_that_are_computed(results):
    """One layer and 2 queries of 16 tokens; with 4 candidates, ToolRefiner computes 20 tokens."""

    def seconds(form):
        return results[f"{form}/milliseconds"] / 1e3 / results[f"{form}/over_arithmetic"]

    hidden, inside, [rate] = 384, 1536, results["machine/rate"]
    for form, texts, tokens, passes in [
        ("mlc/inference/jax", 2, 16, 1),
        ("mlc/training/jax", 2, 16, 3),
        ("refiner/inference/jax", 2, 20, 1),
        ("refiner/alone/jax", 1, 20, 1),
    ]:
        weights = hidden * (4 * hidden + 2 * inside)
        operations = 2 * passes * texts * (weights * tokens + 2 * hidden * tokens**2)
        np.testing.assert_allclose(seconds(form), operations / rate, err_msg=form)


def test_the_refiner_is_compared_with_the_fastest_cross_encoder(results):
    pairwise = [results[f"cross_encoder/{n}/milliseconds"] for n in (24, 96)]
    fastest = min(pairwise, key=np.median)
    alone = results["refiner/alone/jax/milliseconds"]
    batch = results["refiner/inference/jax/milliseconds"] / 2
    np.testing.assert_allclose(results["refiner/alone/over_cross_encoder"], fastest / alone)
    np.testing.assert_allclose(results["refiner/batch/over_cross_encoder"], fastest / batch)


@pytest.mark.parity
def test_pytorch_computes_the_same_and_is_timed(results):
    """The benchmark refuses to time a PyTorch network with other logits or another step."""
    if importlib.util.find_spec("torch") is None:
        assert not any(name.endswith("over_torch") for name in results)
        pytest.skip("torch is not installed")
    for name in MODELS:
        ratio = results[f"{name}/torch/milliseconds"] / results[f"{name}/jax/milliseconds"]
        np.testing.assert_allclose(results[f"{name}/jax_over_torch"], ratio)
