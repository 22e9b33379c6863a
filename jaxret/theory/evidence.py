"""What theorems are held against: runs of one learner, and the numbers they need of them.

Everything is float64 on the host, and q stands for q / tau as everywhere in the theory.

Letters: I items, d width, N queries, L labels, T rounds, S seeds.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from jaxret.learners.learner import Rule
from jaxret.theory.regret import Estimate, losses, over_seeds, regret
from jaxret.types import Stream, Trace


class Evidence(NamedTuple):
    """Runs of one learner that differ in their seed, and what they are compared with.

    The bounds take it that every item is available in every round: strip rows that never are, and
    give ``always_available``, so that the others are counted.
    """

    rule: Rule
    theta_1: Float[Array, "I d"]
    stream: Stream  # order [S, T]
    trace: Trace  # fields [S, T]
    comparator: Float[Array, "I d"]  # U: any Theta that does not depend on the draws
    #: from `jaxret.environments.environment.always_available`; None: nobody measured it
    always_available: Bool[Array, " I"] | None = None


def require_seeds(run: Evidence) -> None:
    """Raises ValueError unless trace and order are both [S, T]."""
    order, loss = np.shape(run.stream.order), np.shape(run.trace.loss)
    if len(order) != 2 or order != loss:
        raise ValueError(
            f"stream.order {order} and the trace's fields {loss} must both be [S, T]:"
            " give a single run a seed axis with x[None]"
        )


def final_regrets(run: Evidence) -> Float[np.ndarray, " S"]:
    """Regret of each seed after the last round.

    Returns:
      [S].
    """
    require_seeds(run)
    compared = losses(run.comparator, run.stream.queries, run.stream.labels, tau=run.rule.tau)
    return regret(run.trace.loss, compared, run.stream.order)[:, -1]


def measured_regret(run: Evidence) -> Estimate:
    """The left-hand side of every bound: the mean regret after the last round."""
    return over_seeds(final_regrets(run))


def distance2(run: Evidence) -> float:
    """``||Theta_1 - U||_F^2``."""
    apart = np.asarray(run.theta_1, np.float64) - np.asarray(run.comparator, np.float64)
    return float((apart**2).sum())


def norm2(run: Evidence) -> Float[np.ndarray, "S T"]:
    """``||q_t||^2``.

    Returns:
      [S, T].
    """
    each = (np.asarray(run.stream.queries, np.float64) ** 2).sum(axis=1)
    return each[np.asarray(run.stream.order)] / float(run.rule.tau) ** 2


def p_label(run: Evidence) -> Float[np.ndarray, "S T"]:
    """The probability of the right item, from the loss: ``p_success`` underflows sooner.

    Returns:
      [S, T].
    """
    return np.exp(-np.asarray(run.trace.loss, np.float64))


def inverse_p(run: Evidence) -> Float[np.ndarray, "S T"]:
    """``sum_i 1 / p_i``.

    Returns:
      [S, T].
    """
    return np.asarray(run.trace.inverse_p, np.float64)


def bias_product(run: Evidence) -> Float[np.ndarray, "S T"]:
    """``<B_t, Theta_t - U> / rho``: with z = Theta q, ``2 z_{i*} - sum_i z_i`` less that of U.

    Returns:
      [S, T].
    """
    u = np.asarray(run.comparator, np.float64)
    q = np.asarray(run.stream.queries, np.float64) / float(run.rule.tau)
    label = (u[np.asarray(run.stream.labels)[:, 0]] * q).sum(axis=1)
    of_u = 2.0 * label - q @ u.sum(axis=0)
    z_label = np.asarray(run.trace.logit_label, np.float64)
    z_sum = np.asarray(run.trace.logit_sum, np.float64)
    return 2.0 * z_label - z_sum - of_u[np.asarray(run.stream.order)]
