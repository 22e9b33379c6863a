"""Chooses from a log the smallest confidence at which tools are shown.

    log = load_log("log.jsonl", task)                  of an `jr.Index` or `jr.simulate(log=)`
    found = threshold(log, risk=0.2)                   0.7: risk 0.113 and at most 0.192, ..
    index.search(query, at_least=found.at_least)

The risk of a threshold is the share of failures among the rounds whose confidence reaches it. Of m
candidate thresholds, fixed before the log is read, the smallest is chosen whose risk has an upper
bound within the limit. Each bound is one minus a lower bound of the mean reward of its rounds
(`jaxret.offline.intervals`), at level alpha / m, so that with probability 1 - alpha all m bounds
hold at once and whichever is chosen.

**What is covered.** A round's confidence is known before its reward, so its rounds are selected
predictably, and the bound covers ``(1 / n) sum E[1 - y_t | past]`` over the n rounds of the log
that reach the threshold, while the learner learns, for queries in any order, and however the end of
the log was chosen. It holds for later rounds if the learner no longer changes and queries are drawn
independently; otherwise only as far as later rounds resemble those of the log.

A log of an index that already abstains has no rounds below its own threshold, and chooses none
there. Sources: selection with a guaranteed risk, Geifman and El-Yaniv (2017), who bound bits that
are drawn independently; the bounds are those of Waudby-Smith et al. (2022).

Letters: T rounds, m candidates, n rounds that reach a threshold.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxret.logs import Log, take
from jaxret.offline.intervals import lower_bounds
from jaxret.offline.off_policy import answered_rounds
from jaxret.runtime.validate import require

CANDIDATES = tuple(i / 10 for i in range(10))  # 0, 0.1, .., 0.9
LEAST_ROUNDS = 2  # below, there is no bound under 1


class Threshold(NamedTuple):
    """A threshold of the confidence, and what the log says about it.

    Attributes:
      at_least: the threshold.
      risk: share of failures among the rounds that reach it.
      bound: upper bound on their mean conditional risk.
      coverage: share of the rounds that reach it.
      rounds: number of rounds that reach it.
    """

    at_least: float
    risk: float
    bound: float
    coverage: float
    rounds: int

    def __repr__(self) -> str:
        return (
            f"{self.at_least:g}: risk {self.risk:.3f} and at most {self.bound:.3f}, coverage "
            f"{self.coverage:.3f} ({self.rounds:,} rounds)"
        )


def threshold(
    log: Log,
    *,
    risk: float,
    alpha: float = 0.05,
    candidates: Sequence[float] = CANDIDATES,
) -> Threshold:
    """Choose the smallest threshold whose risk is bounded by a limit.

    Leaves out unanswered rounds, with a warning, and rounds in which a tool other than the first
    was used: the confidence is for the first tool.

    Args:
      log: log of a learner with confidences (`jaxret.learners.confidence`).
      risk: largest share of failures, in (0, 1).
      alpha: probability that the bound of any candidate fails, in (0, 1).
      candidates: thresholds to choose from, fixed before the log is read, in [0, 1].

    Raises:
      ValueError: if the log has no confidences, a number is out of its range, or no candidate has
        a risk that is bounded by the limit.
    """
    if log.confidence is None:
        raise ValueError(
            "the log has no confidences: write it with jr.mixture() or jr.with_confidence(learner)"
        )
    log = answered_rounds(log)
    assert log.confidence is not None
    own = (log.item == log.slate[:, 0]) & ~np.isnan(log.confidence)
    require("the answered rounds whose first tool was used", int(own.sum()), ">= 2", (2).__le__)
    log = take(log, own)
    assert log.confidence is not None
    return choose(log.confidence, log.reward, risk=risk, alpha=alpha, candidates=candidates)


def choose(
    confidence: Float[np.ndarray, " T"],
    reward: Float[np.ndarray, " T"],
    *,
    risk: float,
    alpha: float = 0.05,
    candidates: Sequence[float] = CANDIDATES,
) -> Threshold:
    """Choose the smallest threshold whose risk is bounded by a limit.

    Args:
      confidence: confidence of each round, known before its reward [T].
      reward: rewards in [0, 1] [T].
      risk: largest share of failures, in (0, 1).
      alpha: probability that the bound of any candidate fails, in (0, 1).
      candidates: thresholds to choose from, fixed before the rounds are read, in [0, 1].

    Raises:
      ValueError: if a number is out of its range, or no candidate has a risk that is bounded by the
        limit.
    """
    require("risk", risk, "in (0, 1)", lambda x: 0 < x < 1)
    tried = measured(confidence, reward, alpha=alpha, candidates=candidates)
    passed = [one for one in tried if one.bound <= risk]
    if not passed:
        best = min(tried, key=lambda one: one.bound)
        raise ValueError(
            f"no threshold of {len(tried)} has a risk of at most {risk:g} with confidence "
            f"{1 - alpha:g}; the best is {best!r}: log longer, or allow a larger risk"
        )
    return min(passed, key=lambda one: one.at_least)


def measured(
    confidence: Float[np.ndarray, " T"],
    reward: Float[np.ndarray, " T"],
    *,
    alpha: float = 0.05,
    candidates: Sequence[float] = CANDIDATES,
) -> list[Threshold]:
    """Bound the risk of every candidate; with probability 1 - alpha all bounds hold at once.

    Args:
      confidence: confidence of each round, known before its reward [T].
      reward: rewards in [0, 1] [T].
      alpha: probability that any bound fails, in (0, 1).
      candidates: thresholds, fixed before the rounds are read, in [0, 1].

    Returns:
      One `Threshold` for each candidate; the bound is 1 for one that no two rounds reach.

    Raises:
      ValueError: if a number is out of its range.
    """
    require("alpha", alpha, "in (0, 1)", lambda x: 0 < x < 1)
    allowed = "one or more numbers in [0, 1]"
    require("candidates", candidates, allowed, lambda c: len(c) and 0 <= min(c) <= max(c) <= 1)
    p, y = np.asarray(confidence, np.float64), np.asarray(reward, np.float64)
    level, found = alpha / len(candidates), []
    for one in candidates:
        own = y[p >= one]
        n = len(own)
        low = lower_bounds(own, np.array([n]), alpha=level)[0] if n >= LEAST_ROUNDS else 0.0
        mean = float(own.mean()) if n else 1.0
        bound = float(np.clip(1 - low, 0, 1))
        found.append(Threshold(float(one), 1 - mean, bound, n / max(len(y), 1), n))
    return found
