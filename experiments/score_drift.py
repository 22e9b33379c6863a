"""Bounds on the change of a score by a learner, for any feedback.

AdamW divides by the root of a mean of squares, so a coordinate moves by at most

    |m_t| / sqrt(v_t) <= K_t = sqrt( sum_s w_s^2 / u_s )            (Cauchy-Schwarz)

with w and u the weights of step s in the two (bias-corrected) moving averages. K_1 = 1, and K_t
grows towards (1 - b1) / sqrt((1 - b2)(1 - b1^2 / b2)), 7.3 for the defaults; the bound is attained
by gradients proportional to w_s / u_s. A score ``theta . q`` then changes by at most

    sum_t lr_t (K_t ||q||_1 + decay |theta . q|)

A step of SGD changes the score of item i by ``eta_t |c_i| |q_t . q| / tau``, whose mean for Eq. (4)
is at most ``eta_t (p_i + 1[i = i_t*]) / tau`` on unit vectors, for items drawn as in Lemma 3.1.

Letters: T rounds, B rounds a batch, I items, d width.
"""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from jaxret.runtime.validate import require


def adam_ratio(steps: int, *, b1: float = 0.9, b2: float = 0.999) -> Float[np.ndarray, " steps"]:
    """Computes K_t for t = 1 .. steps, the bound on a coordinate of Adam's direction.

    Args:
      steps: number of steps, >= 1.
      b1: decay of the mean, in [0, 1).
      b2: decay of the mean of squares, in (b1^2, 1).

    Returns:
      [steps].
    """
    require("steps", steps, ">= 1", lambda n: n >= 1)
    require("b1", b1, "in [0, 1)", lambda x: 0 <= x < 1)
    require("b2", b2, f"in (b1^2, 1) = ({b1**2}, 1)", lambda x: b1**2 < x < 1)
    t = np.arange(1, steps + 1)
    r = b1**2 / b2
    geometric = (1 - r**t) / (1 - r)  # sum over s of (b1^2 / b2)^(t - s)
    weights = ((1 - b1) / (1 - b1**t)) ** 2 * (1 - b2**t) / (1 - b2)
    return np.sqrt(weights * geometric)


def adamw_score_drift(
    learning_rates: Float[ArrayLike, " steps"],
    query: Float[ArrayLike, " d"],
    *,
    longest: float,
    decay: float = 0.01,
) -> float:
    """Bounds the change of ``theta . q`` by AdamW.

    Args:
      learning_rates: learning rate of each step, including the schedule.
      query: q.
      longest: bound of ``|theta|`` over the run, for the weight decay.
      decay: weight decay per step.
    """
    rates, q = np.asarray(learning_rates, np.float64), np.asarray(query, np.float64)
    require("learning_rates", rates, ">= 0", lambda x: (x >= 0).all())
    directions = (rates * adam_ratio(len(rates))).sum() * np.abs(q).sum()
    return float(directions + rates.sum() * decay * longest * np.linalg.norm(q))


def sgd_mean_score_drift(
    steps: Float[ArrayLike, " T"], *, tau: float, share: float, highest: float = 1.0
) -> float:
    """Bounds the mean change of a score by Eq. (4) with items drawn from p, on unit vectors.

    Args:
      steps: eta_t of each round.
      tau: temperature.
      share: share of the rounds in which the item is right; these are assumed to come first, when
        steps are largest.
      highest: bound of p_i over the run.
    """
    for name, value in {"share": share, "highest": highest}.items():
        require(name, value, "in [0, 1]", lambda x: 0 <= x <= 1)
    sizes = np.sort(np.asarray(steps, np.float64))[::-1]
    of_label = sizes[: round(share * len(sizes))].sum()
    return float((highest * sizes.sum() + of_label) / tau)
