"""The comparator of the regret that experiments report."""

import jax
import numpy as np
from omegaconf import OmegaConf

from experiments.common.comparator import comparator_losses
from jaxret.theory import comparators
from tests.problems import make_task


def test_the_comparator_is_optimal_for_each_querys_number_of_exposures():
    """Compare with the proximal comparator of queries that are repeated as often as streamed."""
    task = make_task(queries=20)
    cfg = OmegaConf.create({"exposures": 3, "comparator": {"tau": 0.2, "eta_over_tau": 0.1}})

    @jax.jit
    def losses(queries, labels):
        best = comparators.proximal(queries, labels, task.theta, tau=0.2, eta=0.02)
        return comparators.losses(best.theta, task.queries, task.labels, tau=0.2)

    counts = np.arange(20) % 2 * 2 + 2  # 60 rounds, too
    for given, repeats in ((None, np.full(20, 3)), (counts, counts)):
        repeated = np.repeat(np.arange(20), repeats)
        want = losses(task.queries[repeated], task.labels[repeated])
        np.testing.assert_allclose(comparator_losses(cfg, task, given), want, atol=2e-4)
    once = comparator_losses(OmegaConf.merge(cfg, {"exposures": 1}), task)
    assert np.abs(once - comparator_losses(cfg, task)).max() > 0.01
