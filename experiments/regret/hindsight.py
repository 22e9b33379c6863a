"""The best rows in hindsight, found in float64."""

import jax
import numpy as np
from jaxtyping import Int

from jaxret.task import Task
from jaxret.theory.comparators import Comparator, in_ball, proximal


def best_near_start(
    task: Task, counts: Int[np.ndarray, " N"], *, tau: float, eta: float
) -> Comparator:
    """Finds the proximal comparator of queries with given numbers of exposures."""
    with jax.enable_x64(True):
        return _proximal(*_float64(task), counts.astype(np.float64), eta, tau)


def best_in_ball(task: Task, *, tau: float) -> Comparator:
    """Finds the best rows in the unit ball for each query once."""
    with jax.enable_x64(True):
        return _in_ball(*_float64(task), np.ones(len(task)), tau)


def _float64(task):
    return task.theta.astype(np.float64), task.queries.astype(np.float64), task.labels


@jax.jit
def _proximal(theta_1, queries, labels, counts, eta, tau):
    return proximal(queries, labels, theta_1, eta=eta, tau=tau, counts=counts, tolerance=1e-9)


@jax.jit
def _in_ball(theta_1, queries, labels, counts, tau):
    return in_ball(queries, labels, tau=tau, radius=1.0, theta_0=theta_1, counts=counts)
