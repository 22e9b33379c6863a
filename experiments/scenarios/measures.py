"""The cost of a scenario for a learner, per seed.

Letters: S seeds, T rounds, n windows.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxret.evaluation import plots

Success = Float[np.ndarray, "S T"]  # success of the tool used, 0 or 1


class Windows(NamedTuple):
    """The windows of rounds over which success is averaged."""

    rounds: int  # length of a window
    within: float  # largest deficit against the calm environment that counts as recovered


def measures(
    success: Success, calm: Success, static: Success, begins: int, windows: Windows
) -> dict[str, Float[np.ndarray, " S"]]:
    """Compare a learner in a scenario with the calm environment and with static retrieval.

    Args:
      success: success of the learner in the scenario.
      calm: success of the same learner on the same stream in the calm environment.
      static: success of static retrieval in the scenario.
      begins: the round in which the trouble begins.
      windows: over which success is averaged.

    Returns:
      ``accuracy`` and ``calm``, means of success; ``lost``, the missing successes since
      ``begins``, in rounds of the calm environment; ``until``, rounds from ``begins`` to the first
      window that counts as recovered, or to the end where there is none; ``back``, whether there is
      one; ``worst``, the smallest mean of a window minus static retrieval's; ``loss``, the largest
      number of successes that the learner was behind static retrieval. Each [S].
    """
    success, calm, static = (np.asarray(x, np.float64) for x in (success, calm, static))
    missing = (calm - success)[:, begins:]
    level = calm[:, begins:].mean(axis=1).clip(1 / missing.shape[1])
    good = means(missing, windows.rounds) <= windows.within
    back = good.any(axis=1)
    found = {
        "accuracy": success.mean(axis=1),
        "calm": calm.mean(axis=1),
        "lost": missing.sum(axis=1) / level,
        "until": np.where(back, good.argmax(axis=1), missing.shape[1]).astype(np.float64),
        "back": back.astype(np.float64),
        "worst": means(success - static, windows.rounds).min(axis=1),
        "loss": largest_loss(success, static),
    }
    return {name: np.asarray(values) for name, values in found.items()}


def of_guard(
    guarded: Mapping[str, np.ndarray], free: Success, static: Success, windows: Windows
) -> dict[str, Float[np.ndarray, " S"]]:
    """Compute the cost of a guard, and the losses that remain with it."""
    success = guarded["success"].astype(np.float64)
    return {
        "guard/cost": free.mean(axis=1) - success.mean(axis=1),
        "guard/worst": means(success - static, windows.rounds).min(axis=1),
        "guard/loss": largest_loss(success, static),
        "guard/stopped": guarded["stopped"].astype(np.float64),
    }


def means(values: Success, rounds: int) -> Float[np.ndarray, "S n"]:
    """Compute the means of all whole windows, in order; of all rounds, where they are fewer."""
    width = min(rounds, values.shape[1])
    return plots.running_mean(values, width)[:, width - 1 :]


def largest_loss(success: Success, static: Success) -> Float[np.ndarray, " S"]:
    """Compute the largest number of successes that a learner was behind static retrieval.

    It is 0 for a learner that was never behind.
    """
    behind = plots.cumulative(np.asarray(static, np.float64) - success)
    return np.maximum(behind.max(axis=1), 0.0)
