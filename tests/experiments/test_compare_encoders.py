"""The comparison of two encoders: tables, borrowed settings and refusals."""

import numpy as np
import pytest

from experiments import compare_encoders
from tests.experiments.configs import config_of, in_world
from tests.experiments.conftest import values_of

SIDES = ("minilm", "minilm_1_layers")
SMALL = ["seeds=2", "other.name=minilm", "learner=[greedy]", "learners.greedy.tau=[0.03]"]


def configure(world, directory, *overrides):
    where = [f"other.path={world / 'encoder'}", *in_world(world, directory)]
    return config_of("compare_encoders", *SMALL, *where, *overrides)


def values(world, directory, rates):
    changes = ("other.layers=1", f"learners.greedy.eta_over_tau=[{rates}]")
    compare_encoders.main(configure(world, directory, *changes))
    return values_of(directory)


@pytest.mark.slow
def test_each_seed_runs_with_its_own_setting_and_with_the_other_encoders(world, tmp_path):
    both = values(world, tmp_path / "both", "0.01,0.3")
    alone = {rate: values(world, tmp_path / str(rate), rate) for rate in (0.01, 0.3)}
    for side, other in (SIDES, SIDES[::-1]):
        for result, chooses in (("online", side), ("borrowed", other)):
            rates = both[f"greedy/{chooses}/eta"] / both[f"greedy/{chooses}/tau"]
            for seed, rate in enumerate(rates.round(2).tolist()):
                expected = alone[rate][f"greedy/{side}/online"][seed]
                assert both[f"greedy/{side}/{result}"][seed] == pytest.approx(expected)
        cost = both[f"greedy/{side}/online"] - both[f"greedy/{side}/borrowed"]
        np.testing.assert_allclose(both[f"greedy/{side}/cost"], cost, atol=1e-6)
    steps = [both[f"greedy/{side}/eta"] for side in SIDES]
    assert np.any(steps[0] != steps[1])  # otherwise the borrowed settings are not tested


def test_an_encoder_is_not_compared_with_itself(world, tmp_path):
    cfg = configure(world, tmp_path, f"encoder.path={world / 'encoder'}", "other.layers=null")
    with pytest.raises(ValueError, match="other is the first encoder, minilm: name"):
        compare_encoders.main(cfg)
