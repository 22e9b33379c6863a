"""Is one run better than another? Differences with intervals, by resampling queries and seeds.

    print(compare(run, other))                        accuracy while learning
    print(compare(run, other, "ndcg@10", on=test))    ranking by the last states
    print(compare_all([a, b, c], against=base))       p after Holm, for there are several

Both runs met the same queries in the same order, so their difference is taken query by query and
seed by seed. Other queries might have come, and other seeds: a resample draws questions and seeds
anew, both at once (the crossed bootstrap; queries of one question stay together). With S seeds it
takes their spread for (S - 1) / S of what it is: with few of them an interval is a little short.

Letters: S seeds, N queries, T rounds, B resamples, C questions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from jaxret.evaluation.evaluate import evaluate_each
from jaxret.evaluation.statistics import holm
from jaxret.runtime.validate import require
from jaxret.simulation.run import Run
from jaxret.task import Task

ONLINE = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference of two runs."""

    name: str
    other: str
    metric: str
    difference: float
    low: float  # of the interval
    high: float
    p: float  # two-sided, of no difference
    confidence: float = 0.95

    def __str__(self) -> str:
        interval = f"({self.low:+.3f} to {self.high:+.3f})"
        return (
            f"{self.name} - {self.other}: {self.metric} {self.difference:+.3f} {interval}, "
            f"p = {self.p:.2g}"
        )


class Comparisons(tuple[Comparison, ...]):
    """Several, below one another."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def compare(
    run: Run,
    other: Run,
    metric: str = ONLINE,
    *,
    on: Task | None = None,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Comparison:
    """Holds two runs against each other.

    Args:
      run: of the same task, seeds and exposures as ``other``.
      other: from which it is taken.
      metric: ``accuracy`` of what was shown while learning; or a metric of `evaluate`, on a task.
      on: the queries that the last states rank; None: accuracy while learning.
      confidence: of the interval, in (0, 1).
      resamples: B, >= 100.
      seed: of the resamples.

    Raises:
      ValueError: for runs that cannot be paired, or a ranking metric without a task.
    """
    if on is None and metric != ONLINE:
        raise ValueError(f"{metric} needs the queries to rank: compare(a, b, {metric!r}, on=test)")
    _require_pair(run, other)
    if on is None:
        values, groups = _online(run) - _online(other), run.task.groups
    else:
        mine, theirs = (evaluate_each(one, on, [metric])[metric] for one in (run, other))
        values, groups = mine.astype(np.float64) - theirs, on.groups
    more = {"confidence": confidence, "resamples": resamples, "seed": seed}
    return paired(values, groups, name=run.name, other=other.name, metric=metric, **more)


def paired(
    values: Float[np.ndarray, "S N"],
    groups: Int[np.ndarray, " N"],
    *,
    name: str,
    other: str,
    metric: str = ONLINE,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Comparison:
    """Tells a difference from chance, where the pairs are at hand already.

    Args:
      values: of each seed and query, those of ``other`` subtracted; NaN where there is none.
      groups: the question of each query.
      name: of what is better where values are above 0.
      other: what was subtracted.
      metric: what was measured.
      confidence: as in `compare`.
      resamples: as in `compare`.
      seed: as in `compare`.
    """
    require("confidence", confidence, "in (0, 1)", lambda x: 0 < x < 1)
    require("resamples", resamples, ">= 100", lambda n: n >= 100)
    drawn = _resampled(values, groups, resamples, seed)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    below, above = (drawn <= 0).sum(), (drawn >= 0).sum()
    return Comparison(
        name=name,
        other=other,
        metric=metric,
        difference=float(np.nanmean(values)),
        low=float(low),
        high=float(high),
        p=float(min(1.0, 2 * (1 + min(below, above)) / (1 + resamples))),
        confidence=confidence,
    )


def compare_all(
    runs: Sequence[Run], against: Run, metric: str = ONLINE, *, on: Task | None = None, **more
) -> Comparisons:
    """Holds several runs against one; p-values are corrected for their number (Holm 1979).

    Args:
      runs: one or more; ``against`` itself is left out.
      against: the run that the others are held against.
      metric: as in `compare`.
      on: as in `compare`.
      **more: ``confidence``, ``resamples`` and ``seed`` of `compare`; intervals stay as they are.
    """
    others = [run for run in runs if run is not against]
    require("runs", len(others), "one or more beside the one they are held against", bool)
    found = [compare(run, against, metric, on=on, **more) for run in others]
    corrected = holm([one.p for one in found])
    pairs = zip(found, corrected.tolist(), strict=True)
    return Comparisons(replace(one, p=p) for one, p in pairs)


def _online(run: Run) -> Float[np.ndarray, "S N"]:
    """How often each query succeeded, averaged over its exposures; NaN where it never came."""
    n, success = len(run.task), np.asarray(run.trace.success, np.float64)
    with np.errstate(invalid="ignore"):
        return np.stack(
            [
                np.bincount(order, weights=bits, minlength=n) / np.bincount(order, minlength=n)
                for order, bits in zip(run.order, success, strict=True)
            ]
        )


def _resampled(
    values: Float[np.ndarray, "S N"], groups: Int[np.ndarray, " N"], resamples: int, seed: int
) -> Float[np.ndarray, " B"]:
    """Means of resamples: seeds and questions are drawn with replacement, independently."""
    seeds = len(values)
    questions, place = np.unique(groups, return_inverse=True)
    there = np.isfinite(values)
    known = np.where(there, values, 0.0)
    sums, counts = (  # of each question [S, C]
        np.stack([np.bincount(place, line, minlength=len(questions)) for line in table])
        for table in (known, there.astype(np.float64))
    )
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(resamples):
        which = np.bincount(rng.integers(0, seeds, seeds), minlength=seeds)
        weight = np.bincount(
            rng.integers(0, len(questions), len(questions)), minlength=len(questions)
        )
        means.append((which @ sums @ weight) / (which @ counts @ weight))
    return np.array(means)


def _require_pair(run: Run, other: Run) -> None:
    if run.task.ids != other.task.ids or len(run.task) != len(other.task):
        raise ValueError(f"{run.name} and {other.name} ran on different tasks: no pairs")
    if run.seeds != other.seeds or not np.array_equal(run.order, other.order):
        raise ValueError(
            f"{run.name} and {other.name} met other queries or another order (seeds {run.seeds} "
            f"and {other.seeds}): give both the same seeds and exposures"
        )
