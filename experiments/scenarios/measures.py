"""What a scenario did to a rule, seed by seed.

Letters: S seeds, T rounds, w rounds a window.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxret.evaluation import plots

Success = Float[np.ndarray, "S T"]  # of the tool that was used, 0 or 1


class Windows(NamedTuple):
    """What is called a loss and a return."""

    rounds: int  # w
    within: float  # of success: as good as before


def measures(
    success: Success, calm: Success, static: Success, begins: int, windows: Windows
) -> dict[str, Float[np.ndarray, " S"]]:
    """Holds a rule in a scenario against itself in the calm world, and static retrieval beside it.

    Args:
      success: in the scenario.
      calm: of the same rule on the same stream, in the calm world.
      static: of static retrieval, in the scenario.
      begins: the round in which the trouble does.
      windows: see there.

    Returns:
      ``accuracy`` and ``calm``; ``lost``, the successes that are missing since ``begins``, as
      rounds of the calm world; ``until``, rounds from there to the first window in which the rule
      serves as in the calm world, all that are left where there is none, and ``back``, whether
      there is one; ``worst``, its worst window less static retrieval's, and ``loss``, the largest
      number of successes that it was behind static retrieval since the start. Each [S].
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
    guarded: Mapping[str, np.ndarray],
    free: Float[np.ndarray, "S T"],
    static: Float[np.ndarray, "S T"],
    windows: Windows,
) -> dict[str, np.ndarray]:
    """What the guard costs, and what it keeps from happening."""
    success = guarded["success"].astype(np.float64)
    return {
        "guard/cost": free.mean(axis=1) - success.mean(axis=1),
        "guard/worst": means(success - static, windows.rounds).min(axis=1),
        "guard/loss": largest_loss(success, static),
        "guard/stopped": guarded["stopped"].astype(np.float64),
    }


def means(values: Success, rounds: int) -> Float[np.ndarray, "S n"]:
    """Means of all whole windows; of all rounds there are, where there are fewer.

    Returns:
      [S, n], by the first round of the window.
    """
    width = min(rounds, values.shape[1])
    return plots.running_mean(values, width)[:, width - 1 :]


def largest_loss(success: Success, static: Success) -> Float[np.ndarray, " S"]:
    """The most successes that a rule was ever behind static retrieval; 0 where it never was.

    Returns:
      [S].
    """
    behind = plots.cumulative(np.asarray(static, np.float64) - success)
    return np.maximum(behind.max(axis=1), 0.0)
