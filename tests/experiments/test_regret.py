"""The regret experiment, end to end on small configurations."""

import shutil

import numpy as np
import pytest

from experiments import regret
from experiments.regret import Curve
from tests.experiments.configs import config_of
from tests.experiments.processes import stopped_at

SMALL = [
    "tracking=files",
    "seeds=4",
    "proximal.horizons=[128,256]",
    "proximal.points=[{tau: 0.05, c: 1.2e-3}]",
    "ball.horizons=[1024,2048]",
    "ball.rates=[0.2]",
]


def configure(directory):
    return config_of("regret", *SMALL, f"directory={directory}")


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
        values = regret.main(configure(directory))
    assert {"ball.png", "proximal.png"} <= {path.name for path in directory.iterdir()}
    return directory, values


def test_every_measured_regret_is_below_its_bounds(finished):
    _, results = finished
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
                at = f"{curve}/T={rounds}"
                assert results[f"{at}/regret"] < results[f"{at}/{bound}"]


def test_every_assumption_is_measured(finished, stated):
    assert len(stated) == 14  # 2 horizons x (3 curves x 2 bounds + 1 for the debiased learner)
    silent = {a.name for bound in stated for a in bound.assumptions if not a.is_measured}
    assert not silent


def test_noisy_bits_cost_regret(finished):
    _, results = finished
    assert results["ball/rho=0/T=2048/regret"] < results["ball/rho=0.2/T=2048/regret"]


def test_comparators_are_certified(finished):
    gaps = [value for name, value in finished[1].items() if name.endswith("/certificate")]
    assert len(gaps) == 8
    assert np.max(gaps) < 0.05  # relative to the loss of a run


def test_a_run_that_is_stopped_resumes_and_ends_with_the_same_numbers(finished, tmp_path):
    """Only one step remains; SIGTERM arrives in the first of its two chunks."""
    steps = tmp_path / "steps"
    shutil.copytree(finished[0] / "steps", steps)
    left = steps / "proximal-tau=0.05-T=256.npz"
    left.unlink()
    with stopped_at(1):
        regret.main(configure(tmp_path))
    assert not left.exists()
    assert regret.main(configure(tmp_path)) == finished[1]
