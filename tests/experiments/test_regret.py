"""The regret experiment, end to end on small configurations."""

import numpy as np
import pytest

from experiments import regret
from experiments.regret import Curve
from tests.experiments.configs import config_of
from tests.experiments.processes import stopped_at


def configure(name, directory, *overrides):
    return config_of(name, *overrides, f"directory={directory}", "tracking=files")


SMALL = [
    "seeds=4",
    "proximal.horizons=[128,256]",
    "proximal.points=[{tau: 0.05, c: 1.2e-3}]",
    "ball.horizons=[1024,2048]",
    "ball.rates=[0.2]",
]


@pytest.fixture(scope="module")
def stated():
    """Collect every bound that the run computes."""
    return []


@pytest.fixture(scope="module")
def finished(tmp_path_factory, stated):
    directory = tmp_path_factory.mktemp("regret")
    bounds = Curve.bounds

    def noted(curve, evidence):
        found = bounds(curve, evidence)
        stated.extend(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curve, "bounds", noted)
        values = regret.main(configure("regret", directory, *SMALL))
    assert {"ball.png", "proximal.png"} <= {path.name for path in directory.iterdir()}
    return values


def test_every_measured_regret_is_below_its_bounds(finished):
    beside = {
        "proximal/tau=0.05": ["Theorem 5.1", "Corollary 5.2"],
        "ball/rho=0": ["Theorem 5.1", "Corollary 5.2"],
        "ball/rho=0.2": ["Theorem B.2", "Corollary B.3"],
        "ball/rho=0.2/debiased": ["debiased"],
    }
    for curve, bounds in beside.items():
        horizons = (128, 256) if curve.startswith("proximal") else (1024, 2048)
        for rounds in horizons:
            for bound in bounds:
                assert (
                    finished[f"{curve}/T={rounds}/regret"] < finished[f"{curve}/T={rounds}/{bound}"]
                )


def test_every_assumption_is_measured(finished, stated):
    assert len(stated) == 14  # 2 horizons x (3 curves x 2 bounds + 1 for the debiased learner)
    silent = {a.name for bound in stated for a in bound.assumptions if not a.is_measured}
    assert not silent


def test_noisy_bits_cost_regret(finished):
    at = "T=2048/regret"
    assert finished[f"ball/rho=0/{at}"] < finished[f"ball/rho=0.2/{at}"]


def test_comparators_are_certified(finished):
    gaps = [value for name, value in finished.items() if name.endswith("/certificate")]
    assert len(gaps) == 8
    assert np.max(gaps) < 0.05  # relative to the loss of a run


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(finished, tmp_path):
    with stopped_at(4):
        regret.main(configure("regret", tmp_path, *SMALL))
    assert regret.main(configure("regret", tmp_path, *SMALL)) == finished
