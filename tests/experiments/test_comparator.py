"""The comparator of the regret that experiments report."""

import jax.numpy as jnp
import numpy as np
from omegaconf import OmegaConf

from experiments.common.comparator import comparator_losses
from jaxret.theory import comparators
from tests.problems import make_task


def test_the_comparator_is_optimal_for_each_querys_number_of_exposures():
    """Compare with the proximal comparator of queries that are repeated as often as streamed."""
    task = make_task()
    block = {"tau": 0.2, "eta_over_tau": 0.1}
    cfg = OmegaConf.create({"exposures": 3, "comparator": block})
    counts = np.arange(len(task)) % 2 + 1
    for given, repeats in ((None, np.full(len(task), 3)), (counts, counts)):
        repeated = np.repeat(np.arange(len(task)), repeats)
        best = comparators.proximal(
            jnp.asarray(task.queries[repeated]),
            jnp.asarray(task.labels[repeated]),
            jnp.asarray(task.theta),
            tau=0.2,
            eta=0.02,
        )
        want = comparators.losses(
            best.theta, jnp.asarray(task.queries), jnp.asarray(task.labels), tau=0.2
        )
        np.testing.assert_allclose(comparator_losses(cfg, task, given), want, atol=2e-4)
    once = comparator_losses(OmegaConf.merge(cfg, {"exposures": 1}), task)
    assert np.abs(once - comparator_losses(cfg, task)).max() > 0.01
