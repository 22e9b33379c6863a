"""Estimators against obp 0.5.7, the pipeline of the Open Bandit Dataset, on one small log.

obp needs PyTorch and is not installed. The numbers are the results of its estimators for the log
made below, which was sampled from NumPy's generator in the same way: InverseProbabilityWeighting,
SelfNormalizedInverseProbabilityWeighting, DoublyRobust, SwitchDoublyRobust,
DoublyRobustWithShrinkage, and MarginalizedInverseProbabilityWeighting with the true groups.
"""

import numpy as np
import pytest

from jaxret.offline import estimators
from jaxret.offline.off_policy import go_through
from jaxret.offline.snapshots import Target
from tests.offline.conftest import make_log

N, TOOLS, GROUPS = 60, 4, np.array([0, 0, 1, 1])
OF_OBP = {
    "IPS": 0.4072523862792296,
    "clipped at 2": 0.24840056946184422,
    "SNIPS": 0.4330609506128437,
    "DR": 0.465445131003082,
    "Switch-DR at 1": 0.5100606303008002,
    "Switch-DR at 3": 0.47878644598866155,
    "DRos at 1": 0.48272127630703093,
    "DRos at 9": 0.45783944989996084,
    "MIPS": 0.4000725671578825,
}


@pytest.fixture(scope="module")
def terms():
    """Compute every estimator's terms with our weights and the reward model that obp received."""
    rng = np.random.default_rng(0)
    logging, policy = rng.dirichlet(np.ones(TOOLS), N), rng.dirichlet(np.ones(TOOLS) / 2, N)
    model = rng.random((N, TOOLS))
    item = np.array([rng.choice(TOOLS, p=p) for p in logging])
    reward = (rng.random(N) < 0.4).astype(float)
    log = make_log(item, reward, logging[np.arange(N), item], probabilities=logging)
    target = Target(probabilities=lambda part: policy[part], scores=None)
    rounds = go_through(log, target, groups=GROUPS, truncation=3.0)
    w, y, m = rounds.weight, rounds.reward, model[np.arange(N), item]
    e = (policy * model).sum(axis=1)
    return {
        "IPS": estimators.inverse_propensity(w, y),
        "clipped at 2": estimators.clipped(w, y, 2.0),
        "SNIPS": estimators.self_normalised(w, y),
        "DR": estimators.doubly_robust(w, y, m, e),
        "Switch-DR at 1": estimators.doubly_robust(estimators.switched(w, 1.0), y, m, e),
        "Switch-DR at 3": estimators.doubly_robust(estimators.switched(w, 3.0), y, m, e),
        "DRos at 1": estimators.doubly_robust(estimators.shrunk(w, 1.0), y, m, e),
        "DRos at 9": estimators.doubly_robust(estimators.shrunk(w, 9.0), y, m, e),
        "MIPS": estimators.inverse_propensity(rounds.group_weight, y),
    }


@pytest.mark.parametrize("name", OF_OBP)
def test_an_estimator_gives_what_obp_gave(terms, name):
    assert terms[name].mean() == pytest.approx(OF_OBP[name], rel=1e-12)
