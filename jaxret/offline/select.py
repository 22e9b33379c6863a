"""Selects the learner to serve next from a log: train on its first half, evaluate on the second.

    chosen = select(log, [frozen(), greedy(), mapped()], logging=with_exploration(greedy()))
    print(chosen)                            the value of each learner
    chosen.snapshots[chosen.best]            the trained learner, to serve or to train further

Letters: T rounds.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from jaxret.learners.learner import Learner
from jaxret.logs import Log, take
from jaxret.offline.checked import SCALE, checked, range_of
from jaxret.offline.lists import without_rest
from jaxret.offline.off_policy import OffPolicy, Value, answered_rounds, evaluate, on_scale
from jaxret.offline.snapshots import Snapshot, target, warm_start, with_probabilities
from jaxret.runtime.validate import require, require_different


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Selection:
    """Learners trained on the first half of a log, and their values on the second half."""

    best: str
    by: str  # the estimator whose values were compared
    values: dict[str, OffPolicy]  # on the second half
    snapshots: dict[str, Snapshot]  # after the first half

    @property
    def sure(self) -> bool:
        """True if the interval of the best learner lies above the intervals of all others."""
        best, others = self._chosen(self.best), [*self.values]
        return all(best.low > self._chosen(name).high for name in others if name != self.best)

    def _chosen(self, name: str) -> Value:
        return self.values[name][self.by]

    def __repr__(self) -> str:
        rounds, width = self.values[self.best].rounds, max(map(len, self.values))
        lines = [f"learnt on the first half of a log, {self.by} on its other {rounds:,} rounds:"]
        for name, found in sorted(self.values.items(), key=lambda x: -self._chosen(x[0]).estimate):
            value = self._chosen(name)
            known = value.interval != "none"
            bounds = f"  {value.low:.3f} to {value.high:.3f}, {value.interval}" if known else ""
            lines.append(f"{name:{width}}  {value.estimate:.3f}{bounds}")
            lines[-1] += "  too few effective rounds" if found.few else ""
        lines.append(
            f"{self.best} is best" + ("" if self.sure else ", as far as this log can tell")
        )
        return "\n".join(lines)


def select(
    log: Log,
    learners: Sequence[Learner | Snapshot],
    *,
    logging: Learner | Snapshot | None = None,
    alpha: float = 0.05,
    scale: tuple[float, float] = SCALE,
) -> Selection:
    """Train learners on the first half of a log and select the one with the largest value.

    The value is DR, or SNIPS for a log of slates, on the second half. Learners are evaluated in
    their states after the first half; a learner that continues to learn may earn more.

    Args:
      log: log of any policy that explores.
      learners: with distinct names, and with probabilities; snapshots continue from their
        states.
      logging: learner that wrote the log, in its state before the first round; without it DR has
        no interval.
      alpha: probability that any learner's interval fails, divided equally among the learners
        (Bonferroni).
      scale: lowest and highest possible reward of the log; learners see rewards of 0 to 1, and
        values are mapped back.

    Raises:
      ValueError: if the log has fewer than 4 rounds or no support for a policy, a learner is an
        oracle or has no probabilities, two names are equal, or a field of the log is out of its
        range, as a reward that is not on the scale.
    """
    require("alpha", alpha, "in (0, 1)", lambda x: 0 < x < 1)
    log = checked(log, scale)
    if isinstance(learners, Learner | Snapshot):
        raise ValueError("learners must be a list of learners, got one: off_policy evaluates one")
    require("learners", learners, "one or more", len)
    require("the rounds of the log", log.rounds, ">= 4", lambda n: n >= 4)
    names = [(x.learner if isinstance(x, Snapshot) else x).name for x in learners]
    require_different("the learners' names", names)
    log = without_rest(log)
    if logging is not None and log.probabilities is None:
        log = with_probabilities(log, logging)
    half = log.rounds // 2
    first, second = take(log, slice(0, half)), answered_rounds(take(log, slice(half, None)))
    snapshots, values = {}, {}
    for name, learner in zip(names, learners, strict=True):
        snapshots[name] = warm_start(first, learner)
        aim = target(second, snapshots[name])
        found = evaluate(second, aim, name=name, alpha=alpha / len(names))
        values[name] = on_scale(found, range_of(scale))
    by = "DR" if log.slate.shape[1] == 1 else "SNIPS"
    if few := [name for name in names if values[name].few]:
        warnings.warn(
            f"the log has too few effective rounds to judge {', '.join(few)}: let what serves "
            "explore more, or log longer",
            stacklevel=2,
        )
    best = max(names, key=lambda name: values[name][by].estimate)
    return Selection(best=best, by=by, values=values, snapshots=snapshots)
