"""Compares two rankings or two runs: a difference, its interval and its p-value.

    print(compare(run, other))                        accuracy while learning
    print(compare(run, other, "ndcg@10", on=test))    ranking by the last states
    print(compare(retriever, run, on=test))           anything that `evaluate` takes
    print(compare_all([a, b, c], against=base))       p-values corrected by Holm's procedure

Differences are paired by query and seed, so two runs must have streamed the same queries in the
same order. The interval and the p-value come from a crossed bootstrap: each resample draws seeds
and questions with replacement, independently of each other, and keeps the queries of a question
together. The bootstrap underestimates the variance between S seeds by a factor (S - 1) / S, so
intervals from few seeds are slightly too short.

Letters: S seeds, N queries, T rounds, B resamples, C questions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from jaxret.evaluation.evaluate import Lists, Ranked, RunLike, evaluate_each, is_run, name_of
from jaxret.evaluation.statistics import holm
from jaxret.runtime.validate import real_numbers, require
from jaxret.task import Task

ONLINE = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The mean difference ``name - other`` of a metric, which prints as one line.

    Attributes:
      name: name of the run or ranking.
      other: name of the run or ranking that is subtracted.
      metric: name of the metric.
      difference: mean difference.
      low: lower end of the interval.
      high: upper end of the interval.
      p: two-sided p-value of the hypothesis that there is no difference.
      confidence: confidence level of the interval.
    """

    name: str
    other: str
    metric: str
    difference: float
    low: float
    high: float
    p: float
    confidence: float = 0.95

    def __str__(self) -> str:
        interval = f"({self.low:+.3f} to {self.high:+.3f})"
        return (
            f"{self.name} - {self.other}: {self.metric} {self.difference:+.3f} {interval}, "
            f"p = {self.p:.2g}"
        )


class Comparisons(tuple[Comparison, ...]):
    """Several comparisons, which print as one line each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def compare(
    run: Ranked,
    other: Ranked,
    metric: str = ONLINE,
    *,
    on: Task | None = None,
    first: Lists | None = None,
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Comparison:
    """Compare two runs or two rankings.

    Args:
      run: a run; with ``on``, anything that `evaluate` takes. Two runs must share task, seeds and
        order of queries. Anything else has the same ranking for every seed.
      other: run or ranking that is subtracted from ``run``.
      metric: ``accuracy``, or with ``on`` any ranking metric of `evaluate`.
      on: queries to rank; None: compares the accuracy of two runs while they learned.
      first: `Ranking` of a first stage on the queries of ``on``, for rerankers.
      confidence: confidence level of the interval, in (0, 1).
      resamples: B, >= 100.
      seed: seed of the resamples.

    Raises:
      ValueError: if runs cannot be paired, a ranking metric comes without ``on``, or something
        other than a run comes without ``on``.
    """
    pair: tuple[Any, Any] = (run, other)
    both_run = is_run(run) and is_run(other)
    if on is None and metric != ONLINE:
        raise ValueError(f"{metric} needs the queries to rank: compare(a, b, {metric!r}, on=test)")
    if on is None and not both_run:
        raise ValueError("accuracy while learning needs two runs; rank queries with on=test")
    if both_run:
        _require_pair(run, other)
    if on is None:
        values = success_by_query(pair[0]) - success_by_query(pair[1])
        groups = pair[0].task.groups
    else:
        ours, theirs = (
            evaluate_each(one, on, [metric], first=first)[metric] for one in (run, other)
        )
        values, groups = ours.astype(np.float64) - theirs, on.groups
    more = {"confidence": confidence, "resamples": resamples, "seed": seed}
    return compare_paired(
        values, groups, name=name_of(run), other=name_of(other), metric=metric, **more
    )


def compare_paired(
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
    """Test whether paired differences have the mean 0.

    Args:
      values: differences of each seed and query [S, N]; NaN for missing ones.
      groups: question of each query [N].
      name: name of the first side, which is better where values are above 0.
      other: name of the side that was subtracted.
      metric: metric that was measured.
      confidence: confidence level of the interval, in (0, 1).
      resamples: B, >= 100.
      seed: seed of the resamples.

    Raises:
      ValueError: if the confidence or the number of resamples is out of its range, the shapes do
        not fit, or a difference is infinite or all are missing.
    """
    values, groups = real_numbers("values [S, N]", values, 2), np.asarray(groups)
    if groups.shape != values.shape[1:]:
        raise ValueError(
            f"groups must be [{values.shape[1]}], the question of each query, got "
            f"{list(groups.shape)}"
        )
    if np.isinf(values).any() or np.isnan(values).all():
        raise ValueError("values must be finite numbers, or NaN where missing, and not all missing")
    require("confidence", confidence, "in (0, 1)", lambda x: 0 < x < 1)
    require("resamples", resamples, ">= 100", lambda n: n >= 100)
    resampled = _resampled(values, groups, resamples, seed)
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    below, above = (resampled <= 0).sum(), (resampled >= 0).sum()
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
    runs: Sequence[Ranked],
    against: Ranked,
    metric: str = ONLINE,
    *,
    on: Task | None = None,
    **more: Any,
) -> Comparisons:
    """Compare several runs with one and correct the p-values for their number (Holm 1979).

    Args:
      runs: one or more runs; ``against`` itself is left out.
      against: run that is subtracted from each of ``runs``.
      metric: ``accuracy``, or with ``on`` any ranking metric of `evaluate`.
      on: queries to rank; None: compares accuracy while learning.
      **more: ``first``, ``confidence``, ``resamples`` and ``seed`` of `compare`; intervals are not
        corrected.

    Returns:
      A comparison for each run.

    Raises:
      ValueError: if no run is left, or two runs cannot be compared.
    """
    others = [run for run in runs if run is not against]
    require("runs", len(others), "one or more beside the one they are held against", bool)
    found = [compare(run, against, metric, on=on, **more) for run in others]
    return corrected(found)


def corrected(comparisons: Sequence[Comparison]) -> Comparisons:
    """Correct the p-values of comparisons for their number (Holm 1979)."""
    p_values = holm([one.p for one in comparisons]).tolist()
    pairs = zip(comparisons, p_values, strict=True)
    return Comparisons(replace(one, p=p) for one, p in pairs)


def success_by_query(run: RunLike) -> Float[np.ndarray, "S N"]:
    """Compute the share of each query's exposures that succeeded, before the round's update.

    Returns:
      [S, N]; NaN for queries that were not streamed.
    """
    n, success = len(run.task), np.asarray(run.trace.success, np.float64)
    found = np.full((len(success), n), np.nan)
    for line, order, bits in zip(found, run.order, success, strict=True):
        order, bits = order[order >= 0], bits[order >= 0]
        times = np.bincount(order, minlength=n)
        np.divide(np.bincount(order, weights=bits, minlength=n), times, out=line, where=times > 0)
    return found


def _resampled(
    values: Float[np.ndarray, "S N"], groups: Int[np.ndarray, " N"], resamples: int, seed: int
) -> Float[np.ndarray, " B"]:
    """Compute the means of B resamples of seeds and questions, drawn with replacement."""
    seeds = len(values)
    questions, place = np.unique(groups, return_inverse=True)
    finite = np.isfinite(values)
    known = np.where(finite, values, 0.0)
    sums, counts = (  # of each question [S, C]
        np.stack([np.bincount(place, line, minlength=len(questions)) for line in table])
        for table in (known, finite.astype(np.float64))
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


def _require_pair(run: Any, other: Any) -> None:
    if run.task.ids != other.task.ids or len(run.task) != len(other.task):
        raise ValueError(f"{run.name} and {other.name} ran on different tasks: no pairs")
    if run.seeds != other.seeds or not np.array_equal(run.order, other.order):
        raise ValueError(
            f"{run.name} and {other.name} met other queries or another order (seeds {run.seeds} "
            f"and {other.seeds}): give both the same seeds and exposures"
        )
