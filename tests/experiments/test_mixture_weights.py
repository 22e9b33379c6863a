"""The experiment on the weights of a mixture's experts, on the small world."""

import numpy as np
import pytest

import jaxret as jr
from experiments import mixture
from jaxret.learners.mixture import blend_of
from jaxret.theory.mixture import History
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of


def configure(world, directory, *more):
    small = [*in_world(world, directory), "seeds=2", "repeats=1", "switches=2"]
    return config_of("mixture", *small, *more)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "mixture"
    mixture.main(configure(world, directory))
    return directory, values_of(directory)


def test_a_loss_is_the_sum_over_the_rounds():
    each = np.array([[0.1, 1.0], [0.2, 2.0], [0.4, 4.0]])
    histories = [History(each, k * each, k * np.array([3.0, 2.0, 0.5])) for k in (1, 2)]
    found = mixture.losses(histories, ["one", "other"])
    expected = {"mixture/loss": [5.5, 11], "one/loss": [0.7, 1.4], "other/loss": [7, 14]}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values)


def test_every_expert_has_a_run_of_its_own_and_a_weight(finished):
    _, results = finished
    blend = blend_of(jr.mixture())
    assert blend is not None
    names = blend.experts
    weights = np.stack([results[f"{name}/weight"] for name in names])
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-4)
    assert all(results[f"{name}/alone"].shape == (2,) for name in names)


def test_the_loss_is_below_every_bound(finished):
    _, results = finished
    loss = results["mixture/loss"]
    assert loss.mean() <= results["bound/log_loss"][0]
    for k in (1, 2):
        assert (loss <= results[f"bound/switches/{k}"] + 1e-3).all()
    assert results["sure_errors"].mean() <= results["bound/sure_errors"][0]


def test_costs_are_those_of_the_whole_and_of_its_parts(finished):
    directory, results = finished
    ratio = results["cost/mixture"] / results["cost/experts"]
    np.testing.assert_allclose(results["cost/ratio"], ratio)
    assert (directory / "weights.png").stat().st_size > 10_000
