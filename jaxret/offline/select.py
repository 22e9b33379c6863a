"""Which learner to serve next, by a log alone: learn on its first half, freeze, look at the second.

    chosen = select(log, [frozen(), greedy(), mapped()], logging=with_exploration(greedy()))
    print(chosen)                            what each would have earned
    chosen.snapshots[chosen.best]            what has been learnt, to serve or to go on from

Letters: T rounds.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from jaxret.learners.learner import Learner
from jaxret.logs import Log, take
from jaxret.offline.off_policy import OffPolicy, Value, answered, evaluate
from jaxret.offline.target import Snapshot, target
from jaxret.offline.warm_start import warm_start, with_chances
from jaxret.runtime.validate import require, require_different


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Selection:
    """Learners and what they would earn, frozen after the first half of a log."""

    best: str
    by: str  # the estimator that chose
    values: dict[str, OffPolicy]  # on the second half
    snapshots: dict[str, Snapshot]  # after the first

    @property
    def sure(self) -> bool:
        """Whether the bounds of the best one lie above those of all others."""
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
) -> Selection:
    """Chooses among learners by what each, warm-started on half of a log, would earn on the rest.

    The largest estimate wins: DR, or SNIPS of a log of slates. Each learner is judged frozen, as it
    is after the first half: learning on while it serves may bring more.

    Args:
      log: of any policy that explores.
      learners: with different names, which know their chances; snapshots go on from their states.
      logging: the learner that wrote the log, as it was before its first round; DR has an interval
        only where it is given (`off_policy`).
      alpha: probability that any interval of an estimator fails, of all learners together: each
        has its share (Bonferroni).

    Raises:
      ValueError: as `warm_start` and `off_policy`.
    """
    require("learners", learners, "one or more", len)
    require("the rounds of the log", log.rounds, ">= 4", lambda n: n >= 4)
    names = [(x.learner if isinstance(x, Snapshot) else x).name for x in learners]
    require_different("the learners' names", names)
    if logging is not None and log.chances is None:
        log = with_chances(log, logging)
    half = log.rounds // 2
    first, second = take(log, slice(0, half)), answered(take(log, slice(half, None)))
    snapshots, values = {}, {}
    for name, learner in zip(names, learners, strict=True):
        snapshots[name] = warm_start(first, learner)
        aim = target(second, snapshots[name])
        values[name] = evaluate(second, aim, name=name, alpha=alpha / len(names))
    by = "DR" if log.slate.shape[1] == 1 else "SNIPS"
    if few := [name for name in names if values[name].few]:
        warnings.warn(
            f"the log has too few effective rounds to judge {', '.join(few)}: let what serves "
            "explore more, or log longer",
            stacklevel=2,
        )
    best = max(names, key=lambda name: values[name][by].estimate)
    return Selection(best=best, by=by, values=values, snapshots=snapshots)
