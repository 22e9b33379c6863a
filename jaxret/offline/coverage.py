"""Do intervals cover, and how far off are estimates? Many logs of a problem whose truth is known.

    study = simulate_coverage(rewards, logging, policy, scores=scores, rounds=2000, logs=500)
    study.coverage("IPS"), study.bias("DR"), study.mse("SNIPS"), study.warned
    study = compared(found, truths)          of logs that were made elsewhere

An interval covers a log if it holds the truth at all times that are checked, or at the end of a
bootstrap; the coverage is the share of logs. `simulate_coverage` draws queries evenly, tools from
the logging policy, bits from the rewards, and its truth is the policy's value on the queries of
that log, up to each time. Where queries are drawn independently, their mean is a truth as well.

Letters: N queries, I items, T rounds, n logs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxret.logs import Log
from jaxret.offline.off_policy import OffPolicy, evaluate
from jaxret.offline.target import Target
from jaxret.runtime.validate import require


class Study(NamedTuple):
    """What estimators said of n logs, and what was true."""

    truth: Float[np.ndarray, " n"]  # the value that was to be estimated, at the end of each log
    estimates: dict[str, Float[np.ndarray, " n"]]
    covered: dict[str, Bool[np.ndarray, " n"]]  # of estimators with an interval
    widths: dict[str, Float[np.ndarray, " n"]]  # at the end; of a lower bound, truth less bound
    effective: Float[np.ndarray, " n"]
    few: Bool[np.ndarray, " n"]  # whether the warning of too few effective rounds came

    def coverage(self, estimator: str) -> float:
        """Share of logs in which the interval held."""
        return float(self.covered[estimator].mean())

    def bias(self, estimator: str) -> float:
        """Mean of estimate less truth."""
        return float((self.estimates[estimator] - self.truth).mean())

    def mse(self, estimator: str) -> float:
        """Mean squared error."""
        return float(((self.estimates[estimator] - self.truth) ** 2).mean())

    @property
    def warned(self) -> float:
        """Share of logs with too few effective rounds."""
        return float(self.few.mean())


def simulate_coverage(
    rewards: Float[np.ndarray, "N I"],
    logging: Float[np.ndarray, "N I"],
    policy: Float[np.ndarray, "N I"],
    *,
    scores: Float[np.ndarray, "N I"] | None = None,
    rounds: int,
    logs: int,
    seed: int = 0,
    alpha: float = 0.05,
) -> Study:
    """Simulates n logs and evaluates a policy on each.

    Args:
      rewards: probability that a tool works for a query.
      logging: chances with which the log's policy shows each tool.
      policy: chances of the policy that is evaluated.
      scores: by which it ranks; None: the model of the reward does without.
      rounds: T.
      logs: n.
      seed: of the draws.
      alpha: as in `off_policy`.
    """
    require("rounds", rounds, ">= 2", lambda x: x >= 2)
    require("logs", logs, ">= 1", lambda x: x >= 1)
    rng, value = np.random.default_rng(seed), (policy * rewards).sum(axis=1)
    up_to = np.cumsum(logging, axis=1)
    truth, found = [], []
    for _ in range(logs):
        query = rng.integers(0, len(rewards), rounds)
        lot = rng.random(rounds) * up_to[query, -1]
        item = (up_to[query] <= lot[:, None]).sum(axis=1)
        reward = (rng.random(rounds) < rewards[query, item]).astype(np.float64)
        log = Log(
            query=np.zeros((rounds, 0)),
            slate=item[:, None],
            by_place=logging[query, item][:, None],
            item=item,
            propensity=logging[query, item],
            reward=reward,
            version=np.zeros(rounds, int),
            round=np.arange(rounds),
            chances=logging[query],
        )
        aim = Target(
            chances=lambda part, query=query: policy[query[part]],
            scores=None if scores is None else lambda part, query=query: scores[query[part]],
        )
        truth.append(np.cumsum(value[query]) / np.arange(1, rounds + 1))
        found.append(evaluate(log, aim, name="policy", alpha=alpha))
    return compared(found, truth)


def compared(found: Sequence[OffPolicy], truths: Sequence[Float[np.ndarray, " T"]]) -> Study:
    """Holds what was estimated against what was true.

    Args:
      found: of n logs, each by the same estimators.
      truths: of each log, the value to be covered after 1 .. T rounds.
    """
    ends = np.array([line[-1] for line in truths])
    names = [*found[0].values]
    held = {name: _held(name, found, truths) for name in names}
    return Study(
        truth=ends,
        estimates={name: np.array([one[name].estimate for one in found]) for name in names},
        covered={name: line for name, line in held.items() if line is not None},
        widths={
            name: np.array(
                [
                    np.nan_to_num(one[name].high, nan=end) - one[name].low
                    for one, end in zip(found, ends, strict=True)
                ]
            )
            for name, line in held.items()
            if line is not None
        },
        effective=np.array([one.effective for one in found]),
        few=np.array([one.few for one in found]),
    )


def _held(name: str, found: Sequence[OffPolicy], truths: Sequence[np.ndarray]) -> np.ndarray | None:
    """Whether each interval covered; None for an estimator that has none."""

    def one(value, line):
        if value.sequence is None:
            return value.low <= line[-1] <= value.high
        now = line[value.sequence.times - 1]
        slack = 1e-12  # a bound may be the truth itself
        return bool(
            ((value.sequence.low <= now + slack) & (now <= value.sequence.high + slack)).all()
        )

    if found[0][name].interval == "none":
        return None
    return np.array([one(each[name], line) for each, line in zip(found, truths, strict=True)])
