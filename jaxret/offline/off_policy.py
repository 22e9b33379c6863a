"""The value of a policy that never served, from the log of one that did.

    log = load_log("logs/seed_0.jsonl", task)
    print(off_policy(log, frozen()))
    print(off_policy(log, Snapshot(run.learner, run.state(0)), logging=with_exploration(greedy())))

The value is what the policy, frozen, would earn a round on the queries of the log: the success of
the tool that is used. `jaxret.offline.estimators` has the formulas, `jaxret.offline.intervals` says
which interval holds when, `jaxret.offline.weights` what is meant where several tools are shown.

Letters: I items, T rounds.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxret.learners.learner import Learner
from jaxret.learners.narrow_rows import wide
from jaxret.logs import Log, take
from jaxret.offline import estimators, intervals
from jaxret.offline.groups import groups_of_rows
from jaxret.offline.intervals import Sequence
from jaxret.offline.rounds import go_through
from jaxret.offline.target import Policy, Snapshot, Target, snapshot, target
from jaxret.offline.warm_start import with_chances
from jaxret.offline.weights import effective_sample_size
from jaxret.runtime.validate import require

CLIP = 10.0  # M: the largest weight of clipped IPS
TRUNCATION = 3.0  # h: what the model may take from a term of DR's interval
FEW = 200.0  # effective rounds below which no bootstrap is to be trusted
MISSED = 0.1  # nor where the mean weight is so far from 1: the heavy ones are not in the log


class Value(NamedTuple):
    """What one estimator says."""

    estimate: float
    low: float = float("nan")  # at the end of the log; NaN: there is no valid bound
    high: float = float("nan")
    interval: str = "none"  # or anytime, lower bound, bootstrap
    sequence: Sequence | None = None  # of an anytime-valid interval, at all times that were checked


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OffPolicy:
    """Values of one policy by several estimators; prints itself as a table."""

    name: str
    rounds: int
    logged: float  # what the log's own policy earned a round
    effective: float  # effective sample size: expected, or else as it turned out
    mean_weight: float  # 1 but for chance, or the propensities are wrong
    values: dict[str, Value]

    def __getitem__(self, estimator: str) -> Value:
        return self.values[estimator]

    @property
    def few(self) -> bool:
        """Whether the log has too few effective rounds for a bootstrap."""
        return self.effective < FEW or abs(self.mean_weight - 1) > MISSED

    def __repr__(self) -> str:
        doubt = " (too few for a bootstrap)" if self.few else ""
        lines = [
            f"{self.name} on {self.rounds:,} rounds, which earned {self.logged:.3f}: "
            f"{self.effective:,.0f} effective{doubt}, mean weight {self.mean_weight:.3f}"
        ]
        width = max(map(len, self.values))
        for name, value in self.values.items():
            said = {"none": "", "lower bound": f"at least {value.low:.3f}, anytime"}.get(
                value.interval, f"{value.low:.3f} to {value.high:.3f}, {value.interval}"
            )
            lines.append(f"{name:{width}}  {value.estimate:.3f}  {said}".rstrip())
        return "\n".join(lines)


def off_policy(
    log: Log,
    policy: Policy,
    *,
    logging: Learner | Snapshot | None = None,
    groups: int | Int[np.ndarray, " I"] | None = None,
    cascade: bool = False,
    alpha: float = 0.05,
) -> OffPolicy:
    """Estimates what a policy would earn a round on the queries of a log.

    IPS, SNIPS and clipped IPS; of one tool a round DR, Switch-DR and DRos; with ``logging`` also
    MIPS, and the interval of DR. IPS and DR have intervals that hold at all times at once, clipped
    IPS a lower bound that does, SNIPS and Switch-DR a bootstrap; DRos and MIPS are biased by an
    unknown amount, and have none. DR's interval is that of a truncated model, and need not be
    centred on the estimate. Bounds lie in [0, 1]; estimates are left where they fall, since cutting
    them would be a bias. Rounds that nobody answered are left out, with a warning: whether somebody
    answers must not hang on the bit.

    Args:
      log: its policy may have learnt all the while.
      policy: frozen, and not learnt from these rounds: a snapshot, a learner as it begins, or
        chances [T, I]. Where the log has slates it draws them as `jaxret.offline.weights` says.
      logging: the learner that wrote the log, as it was before these rounds; its chances of what it
        did not show are then worked out again (`with_chances`). Not read where the log has them.
      groups: of tools, for MIPS: how many (by k-means of the policy's rows), or that of each tool;
        None: the root of I.
      cascade: of slates, whether what is below the tool that was used does not matter.
      alpha: probability that an interval fails.

    Raises:
      ValueError: for a log that has no support for the policy, or does not know its propensities;
        for a policy that does not know its chances.
    """
    require("alpha", alpha, "in (0, 1)", lambda x: 0 < x < 1)
    if logging is not None and log.chances is None:
        log = with_chances(log, logging)
    name, of_tool = "the policy", groups if isinstance(groups, np.ndarray) else None
    if isinstance(policy, np.ndarray):
        policy = policy[~np.isnan(log.reward)]
    else:
        policy = snapshot(log, policy)
        name = policy.learner.name
        if not isinstance(groups, np.ndarray) and log.chances is not None:
            of_tool = groups_of_rows(np.asarray(wide(policy.state.theta)), groups)
    log = answered(log)
    aim = target(log, policy)
    found = evaluate(log, aim, name=name, groups=of_tool, cascade=cascade, alpha=alpha)
    if found.few:
        warnings.warn(
            f"{name}: {found.effective:.0f} effective rounds of {found.rounds:,} are too few for a "
            "bootstrap interval: let what serves explore more, or log longer",
            stacklevel=2,
        )
    return found


def answered(log: Log) -> Log:
    """The rounds that were answered, with a warning where that is not all of them.

    Raises:
      ValueError: where less than two were.
    """
    some = ~np.isnan(log.reward)
    require("the rounds that were answered", int(some.sum()), ">= 2", lambda n: n >= 2)
    if some.all():
        return log
    warnings.warn(
        f"{(~some).sum()} of {log.rounds} rounds were not answered and are left out: right only "
        "where that does not hang on whether the tool worked",
        stacklevel=3,
    )
    return take(log, some)


def evaluate(
    log: Log,
    policy: Target,
    *,
    name: str,
    groups: Int[np.ndarray, " I"] | None = None,
    cascade: bool = False,
    alpha: float = 0.05,
) -> OffPolicy:
    """`off_policy` of a log whose rounds were all answered, without its warnings."""
    rounds = go_through(log, policy, groups=groups, cascade=cascade, truncation=TRUNCATION)
    w, y, m, e = rounds.weight, rounds.reward, rounds.model, rounds.expected
    times = intervals.checked_times(log.rounds)

    def anytime(terms, low, high, least=0.0):
        found = intervals.confidence_sequence(low, high, times, alpha=alpha, least=least)
        ends = float(found.low[-1]), float(found.high[-1])
        return Value(float(terms.mean()), *ends, "anytime", found)

    def resampled(terms, *of):
        return Value(float(terms.mean()), *intervals.bootstrap(*of, alpha=alpha), "bootstrap")

    def at_least(terms):
        low = np.maximum(intervals.lower_bounds(terms, times, alpha=alpha), 0)
        found = Sequence(times, low, np.ones_like(low))
        return Value(float(terms.mean()), float(low[-1]), interval="lower bound", sequence=found)

    ips = estimators.inverse_propensity(w, y)
    values = {
        "IPS": anytime(ips, ips, estimators.inverse_propensity(w, 1 - y)),
        "SNIPS": resampled(estimators.self_normalised(w, y), ips, w),
        "clipped IPS": at_least(estimators.clipped(w, y, CLIP)),
    }
    if log.slate.shape[1] == 1:
        dr = estimators.doubly_robust(w, y, m, e)
        switch = estimators.tuned_switch(w, y, m, e)
        shrunk = estimators.tuned_shrinkage(w, y, m, e)
        bounded = log.chances is not None
        ends = (rounds.low, rounds.high, TRUNCATION)
        values["DR"] = anytime(dr, *ends) if bounded else Value(float(dr.mean()))
        values["Switch-DR"] = resampled(switch, switch)
        values["DRos"] = Value(float(shrunk.mean()))
        if bounded and groups is not None:
            marginalised = estimators.marginalised(rounds.group_weight, y)
            values[f"MIPS, {groups.max() + 1} groups"] = Value(float(marginalised.mean()))
    expected = log.rounds / rounds.second.mean()  # NaN where it is not known
    return OffPolicy(
        name=name,
        rounds=log.rounds,
        logged=float(y.mean()),
        effective=effective_sample_size(w) if np.isnan(expected) else float(expected),
        mean_weight=float(w.mean()),
        values=values,
    )
