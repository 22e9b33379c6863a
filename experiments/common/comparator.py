"""The comparator of the regret that experiments report: one for all learners."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from omegaconf import DictConfig

from jaxret.task import Task
from jaxret.theory.comparators import proximal_losses


def comparator_losses(
    cfg: DictConfig, task: Task, counts: ArrayLike | None = None
) -> Float[np.ndarray, " N"]:
    """Compute the loss of each query under the proximal comparator that a config names.

    Args:
      cfg: config with ``exposures`` and the block ``comparator``: its tau, and eta over tau.
      task: task with N queries.
      counts: number of times that each query is streamed [N]; None: ``exposures`` of each.
    """
    _, found = proximal_losses(
        *(task.theta, task.queries, task.labels),
        tau=cfg.comparator.tau,
        eta=cfg.comparator.tau * cfg.comparator.eta_over_tau,
        counts=np.full(len(task), cfg.exposures) if counts is None else np.asarray(counts),
    )
    return found
