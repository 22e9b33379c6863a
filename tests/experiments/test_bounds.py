"""The experiment that compares every bound with runs of growing length, on the small world."""

import numpy as np
import pytest
from omegaconf import OmegaConf

import jaxret as jr
from experiments import bounds
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of

SHORT = "tau: 0.5, c: 0.3, epsilon: 0.1, gamma: 0.1"


def configure(world, directory, *more):
    small = [
        *in_world(world, directory),
        "seeds=2",
        "repeats=[1,1000]",
        "~catalogues.all",
        f"catalogues={{few: {{tools: 3, horizons: [16, 64], {SHORT}}}}}",
    ]
    return config_of("bounds", *small, *more)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "bounds"
    bounds.main(configure(world, directory))
    return directory, values_of(directory)


def test_bounds_that_hold_for_every_draw_exceed_the_measured_quantity(finished):
    _, results = finished
    bounded = [key.removesuffix("/bound") for key in results if key.endswith("/bound")]
    sure = [key for key in bounded if "duality" in key or "against its best expert" in key]
    assert len(sure) > 20
    for place in sure:
        assert results[f"{place}/holds"] == 1
        assert results[f"{place}/measured"].mean() <= results[f"{place}/bound"] + 1e-3


def test_every_learner_has_the_statements_about_it_and_void_ones_say_so(finished):
    directory, results = finished
    holds = {
        key.split("/T=")[0]: values[0] for key, values in results.items() if key.endswith("/holds")
    }
    for name in bounds.DRAWN:
        assert holds[f"few/{name}"] == 1
    assert holds["few/orag, sphere: Theorem 5.1"] == 0
    assert holds["few/noise, orag: debiased"] == 0
    assert (directory / "few.png").stat().st_size > 10_000


def test_each_bound_is_listed_beside_its_trivial_bound(finished):
    _, results = finished
    for key in [key for key in results if key.endswith("/trivial")]:
        rounds, trivial = int(key.split("/T=")[1].split("/")[0]), results[key]
        if "Banditron: Banditron" in key or "SquareCB: SquareCB" in key:
            assert trivial == rounds
        if "best expert" in key:  # bounds another learner's loss
            assert trivial == pytest.approx(rounds * np.log(2))
        else:
            assert (results[key.replace("/trivial", "/measured")] <= trivial + 1e-3).all()


def test_a_bound_that_needs_no_run_falls_with_the_length_of_the_stream():
    labels = np.arange(40) % 4
    task = jr.Task.from_arrays(np.eye(4), np.eye(4)[labels], labels)
    found = bounds.ahead(task, OmegaConf.create({"epsilon": 0.1}), "few", [1, 1000])
    assert list(found) == ["few/Banditron ahead/T=40/bound", "few/Banditron ahead/T=40000/bound"]
    short, long = (values[0] for values in found.values())
    assert 0.075 < long < 0.2 < short  # exploration alone costs 0.1 x 3/4 of the rounds


def test_horizons_begin_alike_and_repeat_whole_streams():
    rng = np.random.default_rng(0)
    theta, queries = rng.normal(size=(4, 3)), rng.normal(size=(10, 3))
    task = jr.Task.from_arrays(theta, queries, [0, 1, 2, 3, 0] * 2)
    short, once = bounds.cut(task, 4, seed=0)
    longer, again = bounds.cut(task, 7, seed=0)
    assert (len(short), once, len(longer), again) == (4, 1, 7, 1)
    assert {q.tobytes() for q in short.queries} < {q.tobytes() for q in longer.queries}
    whole, times = bounds.cut(task, 35, seed=0)
    assert (len(whole), times) == (10, 3)
