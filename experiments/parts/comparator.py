"""The comparator in hindsight of an experiment, and what it loses on each query."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxret.theory.comparators import Comparator, proximal
from jaxret.theory.regret import losses


def solve(
    theta_1: Float[np.ndarray, "I d"],
    queries: Float[np.ndarray, "N d"],
    labels: Int[np.ndarray, "N L"],
    *,
    tau: float,
    eta: float,
    counts: Float[np.ndarray, " N"],
) -> tuple[Comparator, Float[np.ndarray, " N"]]:
    """The proximal comparator, compiled, and its loss on every query.

    As a rule for p(item | query) it can be held against any learner, whatever tau that has: a
    regret counted against its losses differs between learners by their own losses alone.

    Args:
      theta_1: the start that it stays near.
      queries: all of them.
      labels: -1 pads.
      tau: its temperature, > 0.
      eta: how far it may go: the step size of the learner that it is proximal for, > 0.
      counts: how often each query is streamed; 0 leaves it out.
    """
    found, theirs = _solve(theta_1, queries, labels, tau, eta, jnp.asarray(counts, jnp.float32))
    return found, np.asarray(theirs)


@jax.jit
def _solve(theta_1, queries, labels, tau, eta, counts):
    found = proximal(queries, labels, theta_1, eta=eta, tau=tau, counts=counts)
    return found, losses(found.theta, queries, labels, tau=tau)
